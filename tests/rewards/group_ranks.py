"""Two ranks that share a group; the judge works on rank 0 only. A part of `collective_ranks.py`."""

from types import MethodType, SimpleNamespace

from PIL import Image

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend


def in_groups(rank: int) -> dict:
    """The rewards of two prompts, one of which is also on the other rank."""
    backend = FakeBackend(fails=lambda prefix, tail: rank == 1 and "cursed" in prefix, chunk_reads=1)
    reward = ChecklistReward(ChecklistScorer(backend=backend, store=False), on_failure="group", images="ignore")
    batch = dict(prompts=["A", "B"], completions=["cursed", "fine"], checklist=[["Is it red?"]] * 2)
    found = {"rewards": reward(**batch)}
    try:
        reward.as_async()(**batch).send(None)
    except SampleError as error:
        found["async"] = str(error)
    red, blue = ([{"role": "user", "content": [{"image": Image.new("RGB", (8, 8), c)}]}] for c in ("red", "blue"))
    found["images"] = reward(**batch | {"prompts": [red, blue]})
    apart = FakeBackend(lambda prefix, tail: 0.2 if rank == 0 else 0.8)
    centred = ChecklistReward(ChecklistScorer(backend=apart, store=False), shaping=["centred"])
    found["centred"] = centred(**batch | {"prompts": ["A", f"only on {rank}"]})
    try:
        centred.as_async()(**batch).send(None)
    except SampleError as error:
        found["async centred"] = str(error)
    whole = SimpleNamespace(num_generations=4)
    hook = MethodType(lambda self, name, value: None, whole)
    changed = batch | {"prompts": [f"A {rank} {n}" for n in range(2)], "environments": [None] * 2, "log_metric": hook}
    found["in order"] = [centred(**changed), reward(**changed)]
    for step in ("item_zscore", "contrast", "whitened"):
        shaped = ChecklistReward(ChecklistScorer(backend=apart, store=False), shaping=[step])
        found[step] = shaped(**batch | {"prompts": ["A", f"only on {rank}"]})
    parts = ChecklistReward(ChecklistScorer(backend=apart, store=False), shaping=["item_zscore"]).split("sign")
    found["parts"] = [part(**batch | {"prompts": ["A", f"only on {rank}"]}) for part in parts]
    try:
        parts[0].as_async()(**batch).send(None)
    except SampleError as error:
        found["async parts"] = str(error)
    return found
