"""Engine settings by name: what they do, what of them stored answers depend on, and how often the Hub is asked."""

import gc
import pickle
import shutil
import sys
import weakref
from pathlib import Path

import huggingface_hub
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import (
    Engine,
    ReadGroup,
    choose_backend,
    close_engines,
    load_backend,
    model_identity,
    pocket_dir,
)
from checklist_rewards.backends import engine as engines
from checklist_rewards.errors import ModelError
from checklist_rewards.files.store import Store
from checklist_rewards.judges.settings import ScorerConfig
from tests.backends.answers import LABELS
from tests.fakes import FakeBackend

GROUPS = [ReadGroup(None, "The cat sat on the mat. ## Question\n\n", ("Is it short?", "Does it mention a cat?"))]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory) -> str:
    """A LoRA adapter of the pocket model with random weights."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    tuned = peft.get_peft_model(
        model, peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    folder = tmp_path_factory.mktemp("adapter")
    tuned.save_pretrained(folder)
    return str(folder)


def transformers_engine(**settings) -> Engine:
    return Engine("pocket", "transformers", settings=settings)


def read(engine: Engine) -> torch.Tensor:
    return torch.tensor([answer.logprobs for answer in engine.load().read(GROUPS, LABELS)[0]])


def test_settings_that_change_answers_change_the_identity_and_no_others_do():
    plain = transformers_engine().identity
    assert transformers_engine(max_batch_tokens=64, device_map="cpu").identity == plain
    shared = Engine("pocket", "vllm", settings={"tensor_parallel_size": 2, "gpu_memory_utilization": 0.3})
    assert shared.identity == plain
    different = [{"dtype": "bfloat16"}, {"quantization": "fp8"}, {"trust_remote_code": True}, {"setting_of_2027": 1}]
    identities = [transformers_engine(**settings).identity for settings in different]
    assert len({plain, *identities}) == len(different) + 1


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("parts/layers.py", {"trust_remote_code": True}),
        ("best/model.safetensors", {"subfolder": "best"}),
        ("quantized/model.gguf", {"gguf_file": "quantized/model.gguf"}),
        ("tokenizer/tokenizer.json", {"tokenizer": "tokenizer"}),
    ],
)
def test_a_local_model_counts_by_all_files_that_its_settings_load(tmp_path, monkeypatch, name, settings):
    monkeypatch.chdir(tmp_path)  # the tokenizer is a folder of its own
    (tmp_path / "config.json").write_text("{}")
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    identities = []
    for content in ("{}", "[]"):
        file.write_text(content)
        identities.append([model_identity(tmp_path, settings), model_identity(tmp_path)])
    (first, plain), (second, also_plain) = identities
    assert first != second and plain == also_plain


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja", "tokenizer.json", "model-2.safetensors"])
def test_a_model_counts_by_each_file_of_its_folder(tmp_path, name):
    (tmp_path / "config.json").write_text("{}")
    without = model_identity(tmp_path)
    (tmp_path / name).write_text("[]")
    assert model_identity(tmp_path) != without


def test_auto_takes_vllm_where_it_is_installed_and_never_for_the_pocket_model(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    for lacks, engine in ((["vllm"], "transformers"), ([], "vllm")):
        monkeypatch.setattr(engines, "missing", lambda *names, lacks=lacks: lacks)
        monkeypatch.setattr(engines, "check_installed", lambda *names: None)
        assert (choose_backend(str(tmp_path)), choose_backend("pocket")) == (engine, "transformers")
    assert choose_backend("judge", base_url="http://localhost:8000/v1") == "openai"


def test_identities_of_earlier_versions_are_valid(tmp_path):
    # Of the version before files of settings were hashed; stored reads depend on them.
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "modeling_x.py").write_text("a = 1")
    (tmp_path / "model.gguf").write_text("weights")
    given = [None, {"dtype": "bfloat16"}, {"gguf_file": "model.gguf"}]
    assert [model_identity(tmp_path, settings) for settings in given] == [
        "2a4644710ece07acb9d1f5ad38278007",
        "f946cbc66253a7e12b5ef3bb605cb454",
        "20ed7f67911a97f81ee46f15e24ad726",
    ]


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"modules_to_save": ["lm_head"]}], ids=str)
def test_an_adapter_of_which_transformers_leaves_out_weights_is_refused(settings, tmp_path):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=4, target_modules=["q_proj"], **settings)
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(pocket_dir()), lora).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot be loaded into the model .*: .* no place or are missing, such as"):
        transformers_engine(adapter=str(tmp_path)).load()


def test_an_adapter_counts_by_its_content(adapter, tmp_path):
    copied = Path(shutil.copytree(adapter, tmp_path / "copied"))
    first, same = transformers_engine(adapter=adapter).identity, transformers_engine(adapter=str(copied)).identity
    assert first == same != transformers_engine().identity
    weights = next(copied.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert transformers_engine(adapter=str(copied)).identity != first


def test_stored_answers_of_other_settings_are_not_given_out(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    asked = ["Does it end with a question mark?"], "Who is there?"
    for settings, fresh in (({}, 1), ({"max_batch_tokens": 64}, 0), ({"dtype": "bfloat16"}, 1), ({}, 0)):
        scorer = ChecklistScorer("pocket", backend="transformers", engine_args=settings, store=store)
        scorer.score(*asked)
        assert scorer.receipt.asked == fresh, settings


def test_transformers_takes_a_dtype_and_a_lora_adapter(adapter):
    peft = pytest.importorskip("peft")
    half = transformers_engine(dtype="bfloat16").load()
    assert half.model.dtype == torch.bfloat16
    tuned = transformers_engine(adapter=adapter)
    assert (read(tuned) - read(transformers_engine())).abs().max() > 0.01
    merged = transformers_engine(attn_implementation="sdpa").load()  # an engine of its own, to be changed
    merged.model = peft.PeftModel.from_pretrained(merged.model, adapter).merge_and_unload()
    again = torch.tensor([a.logprobs for a in merged.read(GROUPS, LABELS)[0]])
    assert (read(tuned) - again).abs().max() < 1e-4


def test_an_adapter_is_taken_from_a_version_of_transformers_that_does_not_report_its_weights(adapter, monkeypatch):
    load = PreTrainedModel.load_adapter
    monkeypatch.setattr(PreTrainedModel, "load_adapter", lambda *args: load(*args) and None)  # as 5.1 to 5.6
    monkeypatch.setattr(engines, "_engines", {})
    assert (read(transformers_engine(adapter=adapter)) - read(transformers_engine())).abs().max() > 0.01


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            {"dtpye": "bfloat16"},
            r"unknown engine setting of transformers 'dtpye' \(did you mean 'dtype'\?\)",
        ),
        ({"adapter": str(pocket_dir())}, r"adapter='.*' is not a folder with an adapter_config.json"),
    ],
)
def test_a_setting_that_an_engine_does_not_have_is_refused_by_name(settings, error):
    with pytest.raises(ModelError, match=error):
        transformers_engine(**settings).load()


def test_settings_are_a_mapping_and_belong_to_no_backend_object():
    with pytest.raises(ModelError, match="engine_args='fp8' is not allowed; it must be a mapping"):
        ChecklistScorer("pocket", engine_args="fp8")
    with pytest.raises(ModelError, match="cannot be combined with a backend object"):
        ChecklistScorer("pocket", backend=FakeBackend(), engine_args={"dtype": "bfloat16"})


def test_equal_engines_share_a_backend_and_a_copy_builds_its_own(adapter):
    assert transformers_engine().load() is load_backend("pocket", "transformers")
    assert transformers_engine(adapter=adapter).load() is transformers_engine(adapter=adapter).load()
    assert transformers_engine(adapter=adapter).load() is not transformers_engine().load()
    engine = transformers_engine()
    engine.load()
    copied = pickle.loads(pickle.dumps(engine))
    assert copied == engine and engine.is_loaded and not copied.is_loaded


def test_a_closed_engine_is_loaded_again_and_its_memory_is_free_without_its_users(monkeypatch):
    monkeypatch.setattr("checklist_rewards.backends.engine._engines", {})
    monkeypatch.setitem(sys.modules, "checklist_rewards.backends.vllm", None)
    engine, backend = transformers_engine(), weakref.ref(transformers_engine().load())
    close_engines()
    gc.collect()
    assert backend() is None and engine.load() is load_backend("pocket", "transformers")


def test_the_settings_of_an_engine_are_its_own_and_not_shown():
    given = {"token": "hf_secret"}
    config = ScorerConfig(model="org/judge", engine_args=given)
    engine = config.asked
    given["dtype"] = "bfloat16"
    assert engine.settings == {"token": "hf_secret"}, "what the caller does with its mapping later changes no engine"
    assert "hf_secret" not in f"{config} {config!r} {config.asked!r}" and "org/judge" in repr(config.asked)


@pytest.mark.parametrize(
    ("prompts", "settings", "accelerator", "chosen"),
    [
        (16, {}, False, "transformers"),
        (17, {}, False, "vllm"),
        (3, {}, True, "vllm"),
        (3, {"settings": {"max_model_len": 512}}, False, "vllm"),
    ],
)
def test_few_prompts_on_a_cpu_are_written_in_transformers(
    monkeypatch, tmp_path, prompts, settings, accelerator, chosen
):
    built = []
    monkeypatch.setattr(engines, "missing", lambda *modules: [])
    monkeypatch.setattr(engines, "_build", lambda name, *more: built.append(name) or FakeBackend())
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator)
    shutil.copytree(pocket_dir(), tmp_path / "model")
    engine = Engine(str(tmp_path / "model"), **settings)
    identity = engine.identity
    engine.expect(prompts)
    engine.within().load()  # a copy with a budget or a bill
    assert built == [chosen] and engine.identity == identity


def test_the_hub_is_asked_once_for_a_model_and_a_revision_is_another_model(tmp_path, monkeypatch):
    """A Hub cache with two commits of a model, as `hf download` leaves it; the Hub itself is not there."""
    repository = tmp_path / "hub" / "models--org--judge"
    (repository / "refs").mkdir(parents=True)
    for commit, name in (("a" * 40, "main"), ("b" * 40, "v2")):
        shutil.copytree(pocket_dir(), repository / "snapshots" / commit)
        (repository / "refs" / name).write_text(commit)
    asked, download = [], huggingface_hub.hf_hub_download

    def counted(*arguments, **options):
        asked.append(arguments)
        return download(*arguments, **options)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", counted)
    monkeypatch.setattr("transformers.utils.hub.hf_hub_download", counted)
    one = ChecklistScorer("org/judge", backend="transformers", store=False)
    one.validate()
    assert len(asked) == 1
    one.score(["Is it short?"], "Text 0.")
    loaded = len(asked)
    assert loaded > 1  # transformers fetches each file of the model when it is loaded
    one.score(["Is it short?"], "Text 1.")
    ChecklistScorer("org/judge", backend="transformers", store=False).score(["Is it short?"], "Text 2.")
    assert len(asked) == loaded
    for revision, commit in (({}, "a" * 40), ({"revision": "main"}, "a" * 40), ({"revision": "v2"}, "b" * 40)):
        engine = Engine("org/judge", "transformers", settings=revision)
        assert engine.identity == f"org/judge@{commit}"
        assert engine.load().model.config._commit_hash == commit


@pytest.fixture
def retrained(tmp_path, adapter):
    """`retrained(number)` saves the pocket model, and `retrained(number, adapted=True)` its adapter, into one folder
    with weights that depend on a number, and gives the engine settings."""
    from safetensors.torch import load_file, save_file

    folder, own = Path(shutil.copytree(pocket_dir(), tmp_path / "model")), tmp_path / "adapter"
    shutil.copytree(adapter, own)

    def save(number: int, adapted: bool = False) -> dict[str, object]:
        name, target, original = ("model", folder, pocket_dir()) if not adapted else ("adapter_model", own, adapter)
        weights = load_file(Path(original, f"{name}.safetensors"))
        weights = {key: weight * (1 + number / 4) for key, weight in weights.items()}
        save_file(weights, target / f"{name}.safetensors", {"format": "pt"})
        return {"model": str(folder), "settings": {"adapter": str(own)} if adapted else {}}

    return save


@pytest.mark.parametrize("adapted", [False, True])
def test_a_model_that_is_saved_into_its_folder_again_is_another_model(retrained, adapted):
    answers, identities = [], []
    for number in (0, 1, 0):
        engine = Engine(backend="transformers", **retrained(number, adapted))
        answers.append(read(engine))
        identities.append(engine.identity)
        assert engine.load().identity == engine.identity
    assert identities[0] == identities[2] != identities[1]
    assert torch.equal(answers[0], answers[2]) and not torch.equal(answers[0], answers[1])


@pytest.mark.parametrize("adapted", [False, True])
def test_a_model_that_changes_between_check_and_loading_is_refused(retrained, adapted, tmp_path):
    store = Store(tmp_path / "store.sqlite")
    found = retrained(0, adapted)
    scorer = ChecklistScorer(found["model"], backend="transformers", engine_args=found["settings"], store=store)
    scorer.validate()
    retrained(1, adapted)
    with pytest.raises(ModelError, match="have changed since they were checked"):
        scorer.score(["Is it short?"], "A cat.")
    assert not len(store)
    retrained(0, adapted)
    scorer.score(["Is it short?"], "A cat.")
    assert len(store)


def test_a_model_that_changes_while_it_is_loaded_is_refused(retrained, monkeypatch):
    found, build = retrained(0), engines._build

    def slowly(*arguments):
        built = build(*arguments)
        retrained(1)
        return built

    monkeypatch.setattr(engines, "_build", slowly)
    with pytest.raises(ModelError, match="have changed while it was loaded"):
        Engine(backend="transformers", **found).load()


def test_a_scorer_that_has_loaded_its_model_keeps_it(retrained):
    one = Engine(backend="transformers", **retrained(0))
    before, identity = read(one), one.identity
    other = Engine(backend="transformers", **retrained(1))
    assert not torch.equal(read(other), before)
    assert torch.equal(read(one), before) and one.identity == identity == one.load().identity


def test_vllm_refuses_a_folder_that_its_pattern_does_not_find(tmp_path):
    """Before the engine starts. Otherwise it fails after a minute, with advice about memory."""
    shutil.copytree(pocket_dir(), folder := tmp_path / "model [v2]")
    with pytest.raises(ModelError, match=r"with \*, \? or \[ in its path; rename '.*model \[v2\]'"):
        load_backend(str(folder), "vllm")
