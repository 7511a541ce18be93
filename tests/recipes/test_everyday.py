"""Everyday prompts with gold, and the demo that trains on them."""

import json

import pytest
from english.everyday import HELD_OUT_TOPICS, KINDS, TOPICS, prompts

from checklist_rewards.checks import check_of
from checklist_rewards.generators.constraints import find_requirements


@pytest.mark.parametrize("held_out", [False, True])
def test_rules_find_all_requirements_and_agree_with_gold(held_out):
    some = prompts(64, held_out=held_out)
    assert len({one.prompt for one in some}) == 64
    assert {kind.split(" ")[0] for kind in KINDS} == {one.prompt.split(" ")[0] for one in some}
    texts = ("Snow is white, and it is cold.", "the moon?", "a silver moon and a gentle little school at night?")
    for one in some:
        checks = [check_of(r.check) for r in find_requirements(one.prompt) if r.check]
        stated = [check for check in checks if type(check).__name__ != "Sentences"]
        assert len(stated) == len(one.requirements) == 2
        for text in texts:
            assert sum(check.holds(text) for check in stated) / 2 == one.met(text), (one.prompt, text)


def test_held_out_prompts_have_other_topics_and_words():
    assert not set(TOPICS) & set(HELD_OUT_TOPICS)
    assert not {one.prompt for one in prompts(100)} & {one.prompt for one in prompts(100, held_out=True)}
    assert prompts(5, seed=1) != prompts(5, seed=2)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("Snow falls on the white roofs in the morning.", True),
        ("winter", False),
        ("Two plus two is four and nothing else.", False),
    ],
)
def test_content_is_a_text_about_the_topic(text, about):
    [one] = [one for one in prompts(200) if one.topic == "winter" and one.prompt.startswith(KINDS[0][:5])][:1]
    one = type(one)("Write one or two sentences about winter. Use at most 10 words.", "winter", one.requirements)
    assert one.about(text) is about


@pytest.mark.slow
def test_the_demo_trains_and_continues(tmp_path):
    from english.demo import main

    rules = tmp_path / "rules.yaml"
    rules.write_text("generator: {kind: constraints}\n")
    options = ["--output", str(tmp_path / "run"), "--pipeline", str(rules), "--judge", "pocket", "--policy", "pocket"]
    options += ["--tokens", "8", "--groups", "2", "--prompts", "4", "--test-prompts", "2", "--steps", "2"]
    summary = main(options)
    folder = tmp_path / "run" / "seed-0"
    assert len(summary["after"]["log"]) == 2 and 0 <= summary["after"]["requirements"] <= 1
    assert (folder / "curves.png").is_file() and (folder / "report.html").is_file()
    assert (folder / "answers.md").read_text().count("- after (requirements") == 2
    assert len((folder / "rewards.jsonl").read_text().splitlines()) == 2 * 2 * 8
    (folder / "summary.json").unlink()
    again = main(options)  # nothing is left to train
    assert len((folder / "rewards.jsonl").read_text().splitlines()) == 2 * 2 * 8
    assert again["before"] == summary["before"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["after"]["answers"]
