"""GRPO on IFEval's prompts: which prompts are used, their checklists, the tables, and the whole recipe in small."""

import gzip
import json

import pytest
from pocket.grpo_run import GoldReward
from studies.english_grpo import figures
from studies.english_grpo import run as study
from studies.english_grpo.instructions import (
    LIMIT,
    WORDS,
    Instructed,
    dataset_of,
    item_of,
    kept,
    prompts,
    words_needed,
)

from checklist_rewards.checklists import Checklist
from checklist_rewards.checks import parse_check
from checklist_rewards.errors import SampleError

COMMA = ("punctuation:no_comma", {})
TITLE = ("detectable_format:title", {})


def row(*instructions):
    names, kwargs = zip(*instructions, strict=True)
    return {"key": 1, "prompt": "Write a poem.", "instruction_id_list": list(names), "kwargs": list(kwargs)}


@pytest.mark.parametrize(
    ("instructions", "used"),
    [
        ((COMMA, TITLE), True),
        ((COMMA,), False),  # one item
        ((COMMA, ("length_constraints:number_words", {"relation": "at least", "num_words": WORDS})), True),
        ((COMMA, ("length_constraints:number_words", {"relation": "at least", "num_words": WORDS + 1})), False),
        ((COMMA, ("length_constraints:number_words", {"relation": "less than", "num_words": 300})), True),
        ((COMMA, ("length_constraints:number_paragraphs", {"num_paragraphs": 7})), False),
        ((COMMA, ("language:response_language", {"language": "kn"})), False),
        (
            (COMMA, ("keywords:letter_frequency", {"let_relation": "at least", "letter": "#", "let_frequency": 4})),
            False,
        ),
        ((COMMA, ("combination:repeat_prompt", {"prompt_to_repeat": "word " * WORDS})), False),
    ],
)
def test_a_prompt_is_used_if_a_short_response_can_follow_it(instructions, used):
    assert kept(row(*instructions)) is used


def test_an_upper_bound_needs_no_words():
    bound = {"keyword": "war", "frequency": 8}
    assert words_needed("keywords:frequency", {"relation": "at least", **bound}) == 8
    assert words_needed("keywords:frequency", {"relation": "less than", **bound}) == 0


def test_an_instruction_becomes_a_question_and_a_check():
    item = item_of("keywords:frequency", {"relation": "at least", "keyword": "war", "frequency": 1})
    assert item.question == "Does the word 'war' appear at least 1 time?" and item.category == "keywords:frequency"
    item = item_of("length_constraints:number_sentences", {"relation": "less than", "num_sentences": 3})
    assert item.question == "Does the response have fewer than 3 sentences?"
    assert [parse_check(item.check, "").holds(text) for text in ("One. Two.", "One. Two. Three.")] == [True, False]


def test_an_empty_response_follows_nothing():
    one = Instructed(1, "Write a poem.", Checklist(items=(item_of(*COMMA), item_of(*TITLE))))
    assert one.verdicts(" \n") == [False, False] and one.gold("No rain") == 0.5
    assert one.gold("<<Rain>>\nNo rain") == 1 and one.gold("<<Rain>>\nNo, no") == 0.5
    assert one.messages == [{"role": "user", "content": f"Write a poem.\n\n{LIMIT}"}]


def test_half_of_the_prompts_are_held_out(data_dir):
    pytest.importorskip("langdetect")
    training, held_out = prompts(data_dir)
    assert (len(training), len(held_out)) == (87, 86)
    both = [*training, *held_out]
    assert len({one.key for one in both}) == len({one.request for one in both}) == 173
    assert all(len(one.checklist) >= 2 for one in both)
    assert all(
        item.question.endswith("?") and "None" not in item.question for one in both for item in one.checklist.items
    )
    data = dataset_of(training[:2])
    assert [Checklist.parse(value).items for value in data["checklist"]] == [
        one.checklist.items for one in training[:2]
    ]


def test_gold_is_the_official_verdict(data_dir):
    pytest.importorskip("langdetect")
    by_key = {one.key: one for half in prompts(data_dir) for one in half}
    same, seen = [], set()
    with gzip.open(data_dir / "ifeval" / "en_labels.jsonl.gz", "rt", encoding="utf-8") as lines:
        for label in map(json.loads, lines):
            one = by_key.get(label["key"])
            if one is not None and label["key"] not in seen:  # one model's response to each prompt
                seen.add(label["key"])
                same += [a == b for a, b in zip(one.verdicts(label["response"] or ""), label["strict"], strict=True)]
    assert len(seen) == 173 and len(same) == 381 and sum(same) >= 0.99 * len(same)


def test_missing_data_is_an_error(tmp_path):
    pytest.importorskip("langdetect")
    with pytest.raises(SampleError, match="input_data.jsonl: file not found"):
        prompts(tmp_path)


def test_gold_of_a_completion_is_logged():
    reward = GoldReward(lambda prompt, text: float(text.startswith(prompt)))
    chats = [[{"role": "user", "content": "Say a"}], [{"role": "user", "content": "b"}]]
    replies = [[{"role": "assistant", "content": text}] for text in ("a", "b")]
    assert reward(prompts=chats, completions=replies) == [0.0, 1.0]


def response(key, verdicts, yes, text="a b"):
    return {"key": key, "response": text, "kinds": ["comma", "title"], "verdicts": verdicts, "yes": yes}


BEFORE = [response(1, [True, False], [0.5, 0.5]), response(2, [False, False], [0.25, 0.75])]
AFTER = [response(1, [True, True], [0.75, 0.25]), response(2, [False, True], [0.5, 1.0])]


def test_each_arm_has_its_proxy():
    values = {arm: figures.proxy_of(arm)(AFTER[0]) for arm in study.ARMS}
    assert values == {"code": 1.0, "judge": 0.5, "both": 0.75, "dropout": 0.5}


def test_figures_of_an_arm_compare_the_same_prompts():
    run = {"settings": {"seed": 0}, "held_out": {"6": BEFORE, "12": AFTER}}
    found = figures.held_out_figures(BEFORE, "judge", [run])
    assert found["gold"].value == 0.75 and found["gold_change"].value == 0.5 == found["gold_change"].low
    assert found["all_followed"].value == 0.5 and found["all_followed_change"].value == 0.5
    assert found["proxy_change"].value == 0.125 and found["gap_change"].value == -0.375
    assert found["gold_by_seed"] == [0.75] and found["words"] == 2


def test_the_judge_is_compared_with_the_code_by_kind():
    found = figures.by_kind([*BEFORE, *AFTER])
    assert list(found) == ["all", "comma", "title"]
    assert (found["comma"]["n"], found["comma"]["prompts"], found["comma"]["followed"]) == (4, 2, 0.5)
    assert found["comma"]["auc"].value == 0.875 and found["title"]["auc"].value == 0.5


def test_the_first_alarm_of_each_signal(tmp_path):
    alarm = {"kind": "alarm", "about": "hacking", "size": 0.2}
    lines = [
        {"kind": "start"},
        {**alarm, "signal": "shadow_gap", "step": 4},
        {**alarm, "signal": "copied", "step": 5},
        {**alarm, "signal": "shadow_gap", "step": 9},
    ]
    path = tmp_path / "monitor.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = figures.first_alarms(path)
    assert {signal: one["step"] for signal, one in found.items()} == {"shadow_gap": 4, "copied": 5}


@pytest.mark.slow
@pytest.mark.xdist_group("trainers")
@pytest.mark.study
def test_the_recipe_trains_evaluates_and_continues(data_dir, tmp_path, monkeypatch):
    """With the pocket model as policy and judge: it knows no English, but all parts are those of the real study."""
    pytest.importorskip("langdetect")
    how = ["--output", str(tmp_path), "--policy", "pocket", "--judge", "pocket", "--data", str(data_dir)]
    how += ["--arms", "both", "dropout", "--seeds", "0", "--steps", "2", "--groups", "2", "--tokens", "12"]
    summary = study.main([*how, "--test-prompts", "3"])
    assert list(summary["held_out"]) == ["both", "dropout"]
    both, dropout = (
        [json.loads(line) for line in (tmp_path / f"{arm}-0" / "rewards.jsonl").read_text().splitlines()]
        for arm in ("both", "dropout")
    )
    assert len(both) == len(dropout) == 32 and {line["step"] for line in both} == {0, 1}
    assert all(not line["held_out"] for line in both) and any(line["held_out"] for line in dropout)
    for line in both:  # the proxy is the mean of judge and code, and the shadow judge is gold
        code = [vote["answer"] == "yes" for item in line["score"]["items"] for vote in item["votes"][:1]]
        assert line["gold"] == pytest.approx(sum(code) / len(code))
        if "shadow" in line and line["shadow"] is not None:
            assert line["shadow"]["primary_score"] == pytest.approx(line["gold"])
    run = json.loads((tmp_path / "dropout-0" / "summary.json").read_text())
    assert list(run["held_out"]) == ["1", "2"] and all(len(rows) == 3 for rows in run["held_out"].values())
    assert (tmp_path / "dropout-0" / "policy" / "adapter_config.json").is_file()
    text = (tmp_path / "figures.md").read_text()
    assert text.startswith("Held out: 3 prompts") and "| dropout | 0 |" in text and "| dropout-0 |" in text
    assert (tmp_path / "english_grpo.png").is_file()

    monkeypatch.setattr(study, "fit", None)  # cannot be called
    assert study.main([*how, "--test-prompts", "3"]) == summary
