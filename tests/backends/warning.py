"""A program that warns as vLLM does while it is imported. It imports no package, because its children import it."""

import logging
import multiprocessing


def warns(generations: int) -> None:
    """Log the warning about Triton and another one, here and in a child of this process, and in its child ..."""
    logger = logging.getLogger("vllm.triton_utils.importing")
    logger.warning("Triton is installed, but doesn't include CPU backend. Disabling Triton.")
    logger.warning("%d: another warning", generations)
    if generations > 0:
        child = multiprocessing.get_context("spawn").Process(target=warns, args=(generations - 1,))
        child.start()
        child.join()
