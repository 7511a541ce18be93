"""Files of a project may set what changes a score, and nothing that runs code, sends keys or opens other files."""

import pytest
import yaml

from checklist_rewards.backends import Engine
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.settings import JudgeConfig
from checklist_rewards.pipelines import GENERATORS, REFINERS
from checklist_rewards.pipelines.config import RefinerConfig, ScorerPart, WriterConfig
from tests.fakes import FakeBackend
from tests.ui.app.conftest import judging_of

NAMED = "http://127.0.0.1:9/v1"
HARMLESS = {
    "model": "org/one",
    "backend": "transformers",
    "base_url": NAMED,
    "engine_args": {"concurrency": 4, "dtype": "bfloat16"},
    "mode": "item",
    "use_logprobs": True,
    "capture_reasoning": True,
    "votes": 3,
    "temperature": 0.7,
    "thinking": 100,
    "thinking_per": "item",
    "max_tokens": 10,
    "mass_floor": 0.4,
    "prompt": "judges/item",
    "examples": "examples.jsonl",
    "shots": 2,
    "example_reasons": True,
    "calibration": "calibration.json",
}
"""A value of every setting of a judge. A setting that is added to the package fails the tests below until it is
listed here and in `ui/permitted.py`, or refused."""
NESTED = {
    "one": lambda judge: judge,
    "panel": lambda judge: {"panel": {}, "judges": [{"model": "pocket"}, judge]},
    "cascade": lambda judge: {"cascade": {"margin": 0.4}, "judges": [judge, {"model": "pocket"}]},
    "panel in a cascade": lambda judge: {
        "cascade": {},
        "judges": [{"model": "pocket"}, {"panel": None, "judges": [{"panel": {}, "judges": [judge]}]}],
    },
}
ENGINE_ARGS = """
    api_key token default_headers adapter tokenizer load_format hf_overrides worker_cls plugins chat_template
    download_dir quantization_config device_map cache_dir gguf_file speculative_config logits_processors lora_modules
""".split()
PATHS = (
    "../../outside.json /etc/passwd ~/outside.json link.json up/outside.json dangling.json loop.json ../.env".split()
)
PATHS += ["hidden.json", "none.json"]
HARMFUL = [
    {"engine": {"trust_remote_code": True}},  # the name in older files
    {"engine_args": {"trust_remote_code": True}},
    *({"engine_args": {name: "x"}} for name in ENGINE_ARGS),
    {"engine_args": {"dtype": "../../dtype"}},
    {"engine_args": ["trust_remote_code"]},
    {"backend": "openai"},
    {"backend": "decisions"},
    {"backend": "remote", "base_url": NAMED},
    {"base_url": "http://evil.example/v1"},
    {"base_url": "openai"},
    {"base_url": "openrouter"},
    {"base_url": [NAMED, "http://evil.example/v1"]},
    {"backend": "remote", "base_url": "http://evil.example"},
    {"base_url": "http://127.0.0.1:9@evil.example/v1"},
    {"base_url": f"{NAMED},http://evil.example/v1"},
    {"base_url": f"{NAMED}@evil.example/v1"},
    {"base_url": f"{NAMED}.evil.example"},
    {"model": "../outside"},
    {"model": "s3://bucket/model"},
    {"model": "outside"},
    {"weights": "weights.json"},
    {"store": "/tmp/store.sqlite"},
    {"budget": {"dollars": 5}},
    {"allow_code": True},
    {"judge": "other.yaml"},
    {"judges": ["org/one"]},
    *({name: path} for name in ("prompt", "examples", "calibration") for path in (*PATHS, "\0", 5, "", ".")),
]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with links of all kinds, and files outside of it, also in the working directory."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    folder = tmp_path / "project"
    judges = folder / "judges"
    judges.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside.json").write_text("{}")
    (tmp_path / "none.json").write_text("{}")
    (folder / ".env").write_text("KEY=1")
    for where in (folder, judges):
        (where / "link.json").symlink_to(tmp_path / "outside.json")
        (where / "up").symlink_to(tmp_path)
        (where / "dangling.json").symlink_to(tmp_path / "nowhere.json")
        (where / "loop.json").symlink_to(where / "loop.json")
        (where / "hidden.json").symlink_to(folder / ".env")
        (where / "examples.jsonl").write_text('{"target": "red", "question": "Is it red?", "label": "yes"}\n')
        (where / "calibration.json").write_text("{}")
    (folder / "pipelines").symlink_to(judges)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def judging(project):
    return judging_of(project, Engine("judge", "openai", NAMED), FakeBackend())


def refused(check, content) -> str:
    """The sentence of the refusal, which comes before anything is parsed or opened."""
    with pytest.raises(SampleError) as error:
        check("judges/a.yaml", content)
    return str(error.value)


@pytest.mark.parametrize("nesting", NESTED)
def test_every_setting_of_a_judge_is_listed(judging, nesting):
    assert set(HARMLESS) == set(JudgeConfig.model_fields)
    for name, value in HARMLESS.items():
        judge = {"model": "judge" if name == "base_url" else "org/one", name: value}
        judging.permitted.check_judges("judges/a.yaml", NESTED[nesting](judge))


@pytest.mark.parametrize("harmful", HARMFUL, ids=str)
def test_no_judge_of_a_project_runs_code_sends_keys_or_opens_other_files(judging, project, harmful):
    for nested in NESTED.values():
        sentence = refused(judging.permitted.check_judges, nested({"model": "org/one", **harmful}))
        assert sentence.startswith("judges/a.yaml") and "KEY=1" not in sentence


def test_a_file_of_judges_is_checked_before_it_is_used_in_any_way(judging, project):
    harmful = NESTED["panel in a cascade"]({"model": "org/one", "engine_args": {"trust_remote_code": True}})
    (project / "judges" / "a.yaml").write_text(yaml.safe_dump(harmful))
    (project / "judges" / "p.yaml").write_text("scorer: {judge: a.yaml}\n")
    for use in (judging.config_of, judging.described, judging.pipeline):
        for settings in ({"judge": "judges/a.yaml"}, {"pipeline": "judges/p.yaml"}):
            with pytest.raises(SampleError, match=r"judges/a\.yaml"):
                use(settings)


def test_servers_that_the_user_named_may_be_named(judging, project):
    for base_url in (NAMED, f"{NAMED}/", [NAMED]):
        judging.permitted.check_judges("judges/a.yaml", {"model": "other", "base_url": base_url})
    jury = project.parent / "jury.yaml"
    jury.write_text("panel: {}\njudges: [{model: a, base_url: 'http://named.example/v1'}, {model: pocket}]\n")
    started = judging_of(project, FakeBackend(), config={"scorer": {"judge": str(jury)}})
    started.permitted.check_judges("judges/a.yaml", {"model": "b", "base_url": "http://named.example/v1"})
    with pytest.raises(SampleError, match="was not named when the app was started"):
        started.permitted.check_judges("judges/a.yaml", {"model": "b", "base_url": NAMED})


FILES = "../../outside.json /etc/passwd link.json dangling.json none.json".split()
CHECKED = {
    ScorerPart: """model backend base_url engine_args store budget prompt examples calibration weights judge
        allow_code options""".split(),
    WriterConfig: ["model", "prompt", "prompts", "candidate_models", "options"],
    RefinerConfig: ["options"],
}
"""Settings of each part of a pipeline that are checked or refused. The others are allowed with any value."""


def test_every_setting_of_a_pipeline_is_allowed_checked_or_refused(judging):
    """A value that no setting may have is refused for every setting that is not plain."""
    for part, model in {"scorer": ScorerPart, "generator": WriterConfig, "refiners": RefinerConfig}.items():
        for name in model.model_fields:
            content = {part: {name: {"trust_remote_code": True}}}
            if name in CHECKED[model]:
                refused(judging.permitted.check_pipeline, content)
            else:
                judging.permitted.check_pipeline("judges/a.yaml", content)
        assert set(CHECKED[model]) <= set(model.model_fields)


def test_no_pipeline_of_a_project_names_other_files(judging):
    for file in FILES:
        options = {"options": {"prompt": file}}
        for content in (
            *({"scorer": {name: file}} for name in ("prompt", "examples", "calibration", "weights", "judge")),
            *({"generator": entry} for entry in ({"prompt": file}, {"prompts": {"stage": file}}, options)),
            *({"refiners": entry} for entry in (options, [options])),
        ):
            refused(judging.permitted.check_pipeline, content)


def test_options_of_parts_load_no_model_and_run_no_code(judging):
    harmful = {"model", "backend", "base_url", "store", "scorer", "engine_args", "embedder", "shape", "allow_code"}
    for part, entries in {"generator": GENERATORS, "refiners": REFINERS}.items():
        for entry in entries:
            for name in {*(entry.settings or ())} & harmful:
                content = {part: {"kind": entry.name, "options": {name: "org/with-code"}}}
                refused(judging.permitted.check_pipeline, content)


def test_candidate_models_do_not_share_the_right_to_run_code(judging, project):
    content = {"generator": {"kind": "contrastive", "candidate_models": ["evil/model"]}}
    judging.permitted.check_pipeline("judges/a.yaml", content)
    writer = Engine("mine/model", "transformers", settings={"trust_remote_code": True})
    assert "trust_remote_code" in refused(judging_of(project, writer).permitted.check_pipeline, content)


def test_a_judge_that_changes_after_it_was_used_is_checked_again(project):
    judging = judging_of(project, FakeBackend())
    file = project / "judges" / "a.yaml"
    file.write_text("{model: pocket, mass_floor: 0.4}\n")
    first = judging.pipeline({"judge": "judges/a.yaml"})
    assert judging.pipeline({"judge": "judges/a.yaml"}) is first
    file.write_text("{model: pocket, mass_floor: 0.25}\n")
    second = judging.pipeline({"judge": "judges/a.yaml"})
    assert second is not first and second.scorer.judge is not first.scorer.judge
    file.write_text("{model: pocket, engine: {trust_remote_code: true}}\n")
    with pytest.raises(SampleError, match="trust_remote_code"):
        judging.pipeline({"judge": "judges/a.yaml"})
