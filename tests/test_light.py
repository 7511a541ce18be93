"""What works without any extra. Libraries of extras are hidden here; in `test_light_install.py` there are none."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.datasets.table import BatchScore
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.rewards.configured import configured_reward
from checklist_rewards.rewards.trl import ChecklistReward
from tests.backends.answerserver import SERVED_NAME, serving
from tests.conftest import REPO
from tests.jsonl import write_jsonl

OF_EXTRAS = (
    "torch transformers trl datasets accelerate pyarrow pandas vllm peft numpy scipy sklearn statsmodels ray "
    "krippendorff sentence_transformers matplotlib jinja2 huggingface_hub tokenizers fastapi starlette uvicorn "
    "wasmtime langdetect"
).split()

NOT_LIGHT = {
    *(f"backends.{name}" for name in ("difference", "encoder", "inputs", "live", "transformers", "vision", "vllm")),
    *(f"datasets.{name}" for name in ("build", "publishing", "ray", "scoring")),
    *(f"rewards.{name}" for name in ("callback", "online_dpo", "sdpo")),
    "distill.adapter",
    "distill.training",
    "monitor.callback",
    "server",
    *(f"ui.{name}" for name in ("app", "guard")),
}
"""The modules that cannot be imported without an extra: engines, TRL's classes, datasets, training, the servers."""

IMPORT_ALL = """
import importlib, json, pkgutil, sys, warnings
from pydantic import PydanticDeprecatedSince20
from tests.rewards.hosts import host_modules

warnings.simplefilter("error", PydanticDeprecatedSince20)  # an option of a field that this pydantic ignores

sys.modules.update(host_modules())  # the frameworks of the integrations
sys.modules.update(dict.fromkeys(sys.argv[1:]))
import checklist_rewards

failed = {}
names = pkgutil.walk_packages(checklist_rewards.__path__, "checklist_rewards.", onerror=lambda name: None)
for name in [module.name for module in names if not module.name.endswith("__main__")]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed[name.removeprefix("checklist_rewards.")] = str(error)
print(json.dumps(failed))
"""


PUBLIC = """
import sys
import checklist_rewards

assert "checklist_rewards.scorer" not in sys.modules
assert {*checklist_rewards.__all__} <= {*dir(checklist_rewards)}
assert checklist_rewards.errors.SampleError.__name__ == "SampleError"
assert not hasattr(checklist_rewards, "no_such_module")
assert checklist_rewards.Sample is checklist_rewards.scorer.Sample
"""


def test_a_bare_import_has_the_public_names_and_the_modules():
    subprocess.run([sys.executable, "-c", PUBLIC], cwd=REPO, check=True, timeout=120)


def hide(monkeypatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


def test_all_modules_but_a_few_are_imported_without_the_libraries_of_extras():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *OF_EXTRAS], cwd=REPO, capture_output=True, text=True, check=True
    )
    failed = json.loads(done.stdout)
    assert set(failed) == NOT_LIGHT, {name: why for name, why in failed.items() if name not in NOT_LIGHT}


@pytest.mark.parametrize(("backend", "hidden"), [("auto", "torch"), ("encoder", "transformers")])
def test_a_model_in_this_process_is_refused_with_the_extra_to_install(monkeypatch, backend, hidden):
    hide(monkeypatch, hidden, "huggingface_hub", "vllm")
    says = rf"^'org/model' without base_url runs in this process, which requires {hidden}: pip install 'checklist-rew"
    with pytest.raises(ModelError, match=says + r"ards\[trl\]', or set base_url to a server\.$"):
        ChecklistScorer("org/model", backend=backend).validate()
    with pytest.raises(ModelError, match="'pocket' without base_url"):
        ChecklistScorer("pocket", store=False).score(["Is it short?"], "two words")
    with pytest.raises(ModelError, match=rf"'english-encoder' requires .*{hidden}.*: pip install .*\[encoder\]'\.$"):
        ChecklistScorer("english-encoder").validate()
    ChecklistScorer("org/model", base_url="http://localhost:8000/v1", store=False)


def test_code_checks_alone_need_no_model(run, monkeypatch):
    hide(monkeypatch, "torch", "transformers", "huggingface_hub", "vllm")
    checked = [{"question": "Is it short?", "check": {"type": "words", "at_most": 3}}]
    assert ChecklistScorer(store=False).score(checked, "two words").primary_score == 1
    reward = ChecklistReward(store=False, deadline=30)  # which loads the judge before the clock starts
    rewards = reward(prompts=["Write."] * 2, completions=["two words", "some more words"], checklist=[checked] * 2)
    assert rewards == [1, 1]
    row = {"input": "Write.", "target": "two words", "candidates": ["two words", "a b c d"], "checklist": checked}
    write_jsonl("rows.jsonl", row)
    write_jsonl("mixed.jsonl", row | {"checklist": [*checked, "Is it polite?"]})
    for command in ("score", "rerank", "pairs"):
        done = run(f"{command} rows.jsonl -o {command}.jsonl --no-store", with_model=False)
        assert "pocket" not in done.stderr
        run(f"{command} mixed.jsonl -o new.jsonl --no-store", with_model=False, refused="no model is named")
    assert "answered by" not in Path("pairs.md").read_text()
    Path("reward.yaml").write_text("metric: pass\nstore: false\n")
    assert configured_reward("reward.yaml")(["Write."], ["two words"], checklist=[checked]) == [1]
    Path("named.yaml").write_text("model: org/model\nstore: false\n")
    with pytest.raises(ModelError, match="'org/model' without base_url"):
        configured_reward("named.yaml")


def test_without_transformers_a_vllm_server_is_read_by_chat(monkeypatch, caplog):
    hide(monkeypatch, "transformers")
    with serving() as server, caplog.at_level(logging.WARNING):
        scorer = ChecklistScorer(SERVED_NAME, base_url=server.base_url, store=False)
        score = scorer.score(["Is it?", "Is it short?"], target="text")
        assert all("messages" in asked for asked in server.asked) and len(server.asked) == 2
    assert score.items[0].confidence == pytest.approx(0.731, abs=1e-3)
    assert "transformers is not installed, so each read" in caplog.text
    assert "pip install 'checklist-rewards[trl]'" in caplog.text


def test_parquet_names_its_extra_before_anything_is_written(monkeypatch, tmp_path):
    hide(monkeypatch, "pyarrow", "pandas")
    path = tmp_path / "rows.parquet"
    says = r"rows.parquet: Parquet files require pyarrow: pip install 'checklist-rewards\[datasets\]'\.$"
    with pytest.raises(SampleError, match=says):
        read_rows(path)
    with pytest.raises(SampleError, match=says), write_rows(path):
        pass
    table = BatchScore([], [])
    for convert in (table.to_dataframe, lambda: table.to_parquet(path), lambda: BatchScore.from_parquet(path)):
        with pytest.raises(SampleError, match=r"(needs pandas|needs pyarrow|require pyarrow): pip install '.*\[data"):
            convert()
    assert not path.exists()


def test_a_report_needs_no_extra_and_says_what_it_leaves_out(monkeypatch, tmp_path):
    from checklist_rewards.ui.report import write_report
    from tests.ui.files import page_data, scored_rows, write

    hide(monkeypatch, "numpy", "scipy")
    paths = [write(tmp_path / f"{name}.jsonl", scored_rows(8, name)) for name in ("one", "two")]
    write_report(tmp_path / "report.html", paths)
    data = page_data(tmp_path / "report.html")
    extra = "pip install 'checklist-rewards[evaluation]'."
    assert data["notes"] == [f"Comparisons require numpy: {extra}"]
    assert data["files"][0]["analysis"] == {"missing": f"Item analysis requires numpy: {extra}"}
    assert data["files"][0]["overview"]["rows"] == 8


def test_functions_of_an_extra_name_it(monkeypatch, tmp_path):
    hide(monkeypatch, "datasets")
    for name in [name for name in sys.modules if name.startswith("checklist_rewards.datasets.")]:
        monkeypatch.delitem(sys.modules, name)
    import checklist_rewards
    from checklist_rewards import datasets

    needs = r"^this needs datasets: pip install 'checklist-rewards\[datasets\]'\.$"
    for use in (
        lambda: checklist_rewards.build_checklists,
        lambda: datasets.save_dataset,
        lambda: datasets.import_checklists(tmp_path / "rows.jsonl"),
    ):
        with pytest.raises(SampleError, match=needs):
            use()
