"""The study of rewards for everyday requests, with the pocket model as policy and judge."""

import json

import pytest
from english.everyday import Everyday
from studies.english_policy import by_requirement, main


def test_requirements_are_counted_by_kind():
    asked = (("punctuation:no_comma", {}), ("startend:end_checker", {"end_phrase": "?"}))
    one = Everyday("Write about rain.", "rain", asked)
    assert by_requirement([one], [{"answers": [["Is it wet?", "Rain, rain?"]]}]) == {"end_checker": 1, "no_comma": 0.5}


@pytest.mark.slow
@pytest.mark.study
def test_the_study_compares_arms_and_is_continued(tmp_path, capsys):
    (tmp_path / "ifeval").mkdir()
    names = ["punctuation:no_comma", "detectable_format:title"]
    row = {"key": 1, "prompt": "Write a poem.", "instruction_id_list": names, "kwargs": [{}, {}]}
    rows = [json.dumps(row | {"key": key}) for key in range(4)]
    (tmp_path / "ifeval" / "input_data.jsonl").write_text("\n".join(rows))
    (tmp_path / "rules.yaml").write_text("generator: {kind: constraints}\n")
    options = [f"--output={tmp_path / 'run'}", f"--data={tmp_path}", f"--pipeline={tmp_path / 'rules.yaml'}"]
    options += ["--policy=pocket", "--judge=pocket", "--steps=1", "--groups=1", "--prompts=4", "--test-prompts=2"]
    options += ["--samples=1", "--arms", "code", "--seeds", "0"]
    summary = main(options)

    assert set(summary) == {"untrained", "best of 8", "code"}
    assert 0 <= summary["code"]["IFEval"]["value"] <= 1
    assert (tmp_path / "run" / "curves.png").is_file()
    again = main([*options[:-1], "0", "1", "--summary"])
    assert again == summary, "only what is finished, and nothing is run again"
    other = [f"--output={tmp_path / 'with-ifeval'}", "--ifeval-training", "--tokens=8"]
    main([*options, *other])
    settings = json.loads((tmp_path / "with-ifeval" / "code-0" / "summary.json").read_text())["settings"]
    assert (settings["prompts"], settings["more"], settings["tokens"]) == (4, 2, 8)
