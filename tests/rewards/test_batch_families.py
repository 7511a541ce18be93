"""The judge reads the answer and nothing but the answer: every chat format, in GRPO, RLOO and OnlineDPO.

`python -m tests.rewards.test_batch_families` writes the tables of `docs/compatibility.md`.
"""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.batch import Call
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward
from checklist_rewards.rewards.integrations.openrlhf import ChecklistRewardFunc
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.families import (
    DECLARED,
    FAMILIES,
    HIDDEN,
    INVENTED,
    KNOWN,
    RENDERED,
    WORDED,
    Family,
    tokenizer,
    typed,
)
from tests.rewards.fakes import reward_by, scorer_by, user
from tests.rewards.matrix import ABSENT, COLUMNS, REFUSED, RIGHT, THOUGHT, Trainer, cases, cell, matrix, seen

pytestmark = pytest.mark.slow

FIVE = ("gptoss", "gemma4_v5", "qwen3", "deepseek_r1_distill", "magistral")
"""Families that run in RLOO and OnlineDPO."""


LABEL = json.dumps(["Is it so?"])


def judged_text(prefix: str) -> str:
    """The target in a rendered judge prompt: the text of its last fence."""
    return re.findall(r"<(target-\d+)>\n(.*?)\n</\1>", prefix, re.S)[-1][1]


def names(families: Sequence[Family]) -> list[str]:
    return [family.name for family in families]


def content(family: Family, text: str) -> str | list[dict[str, str]]:
    """A text as the messages of the family have it."""
    return [{"type": "text", "text": text}] if family.blocks else text


def encoded(tokens, *texts: str) -> tuple[list[list[int]], list[str]]:
    """What a policy writes: token ids, and the texts that a trainer decodes."""
    ids = [tokens(text, add_special_tokens=False)["input_ids"] for text in texts]
    return ids, tokens.batch_decode(ids, skip_special_tokens=True)


def faults(cells: Mapping[str, str], *allowed: str) -> dict[str, str]:
    return {column: text for column, text in cells.items() if text not in (RIGHT, *allowed)}


# --- the data


@pytest.mark.parametrize("name", FAMILIES)
def test_the_data_describes_the_template(name):
    family = FAMILIES[name]
    tokens = tokenizer(family)
    turns = [("user", "Hello."), ("assistant", "Hi."), ("user", "Again.")]
    messages = [{"role": role, "content": content(family, text)} for role, text in turns]
    prompt = tokens.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **family.kwargs)
    assert all(text in prompt for _, text in turns)
    assert prompt.rstrip().endswith(family.tag) == family.opened
    assert not family.answer_opened or prompt.endswith(family.answer_opens)
    written = family.thought(THOUGHT, "It is 42.")
    [ids], [decoded] = encoded(tokens, written)
    assert tokens.decode(ids) == written
    assert all(token in decoded for token in family.added if token in written)
    assert not any(token in decoded for token in (family.end, *family.special))


# --- the matrix


@pytest.mark.parametrize("name", names(KNOWN))
def test_grpo_judges_the_answer(name, tmp_path):
    assert not faults(matrix(FAMILIES[name], "GRPO", tmp_path))


@pytest.mark.parametrize("name", FIVE)
def test_rloo_judges_the_answer(name, tmp_path):
    assert not faults(matrix(FAMILIES[name], "RLOO", tmp_path))


@pytest.mark.parametrize("name", FIVE)
def test_online_dpo_judges_the_answer(name, tmp_path):
    """Without `tokenizer=` the reward may refuse."""
    cells = matrix(FAMILIES[name], "OnlineDPO", tmp_path)
    without = cells.pop("no tokenizer")
    assert not faults(cells) and without in (RIGHT, REFUSED)


@pytest.mark.parametrize("name", [name for name in FIVE if FAMILIES[name].drops_markers])
def test_a_reward_that_cannot_know_the_tokenizer_says_what_to_pass(name, tmp_path, caplog):
    family = FAMILIES[name]
    reward = reward_by()
    rows = cases(family, "chat")
    arrived = [what.arrived for what in seen(family, "GRPO", "chat", rows, tmp_path)]
    columns = {key: [row[key] for row in arrived] for key in ("prompts", "completions", "completion_ids", "checklist")}
    reward(**columns)  # as a loop of one's own may do: nothing leads to the tokenizer
    assert [record.message for record in caplog.records if "pass tokenizer=..." in record.message]
    caplog.clear()
    reward(**columns)
    assert not [record for record in caplog.records if "pass tokenizer=..." in record.message]  # said once


# --- invented families


@pytest.mark.parametrize("trainer", COLUMNS)
@pytest.mark.parametrize("family", [DECLARED, RENDERED], ids=lambda family: family.name)
def test_markers_that_a_template_shows_are_found(family, trainer, tmp_path):
    assert not faults(matrix(family, trainer, tmp_path), *([REFUSED] if trainer == "OnlineDPO" else []))


MARKERS = [
    ("<|cot_begin|>", "<|cot_end|>"), ("[[musing]]", "[[/musing]]"), ("⟦inner⟧", "⟦/inner⟧"), ("{mull}", "{/mull}"),
    ("<|channel=self|>", "<|endchannel|>"), ("<%R%>", "<%/R%>"), ("<monologue>\n", "\n</monologue>\n\n"),
]  # fmt: skip


WAYS = list(itertools.product((False, True), ("declared", "rendered"), (False, True)))
"""Whether the markers are special tokens, how the template shows them, and whether the prompt opens a thought."""


@pytest.mark.parametrize(
    ("markers", "special", "how", "opened"),
    # The first markers in all ways, each of the others in one. The last ones have line breaks, which no token has.
    [(MARKERS[0], *way) for way in WAYS]
    + [(markers, *WAYS[3 * place % 8]) for place, markers in enumerate(MARKERS[1:-1])]
    + [(MARKERS[-1], *WAYS[n]) for n in (1, 2)],
)
def test_any_markers_that_a_template_shows_are_found(markers, special, how, opened, tmp_path):
    opens, closes = markers
    field = {"open": opens.strip(), "close": closes.strip(), "content": "text"}
    family = typed(
        DECLARED if how == "declared" else RENDERED,
        turn="<|role|>ROLE\nTEXT<|done|>\n",
        thought="" if how == "declared" else None,
        opens=opens,
        closes=closes,
        opened=opened,
        special=("<|role|>", *([opens.strip(), closes.strip()] if special else [])),
    )
    if family.response_template is not None:
        fields = {**family.response_template["fields"], "reasoning_content": field}
        family = replace(family, response_template={**family.response_template, "fields": fields})
    assert not faults(matrix(family, "GRPO", tmp_path))


def test_an_unknown_token_at_the_start_of_most_completions_is_refused(tmp_path):
    """No name tells that these tokens are about thoughts, and nothing in the template shows what they are for."""
    family = replace(HIDDEN, special=("<|role|>", "<|lane_a|>", "<|lane_b|>"), opens="<|lane_a|>", closes="<|lane_b|>")
    tokens = tokenizer(family)
    ids, texts = encoded(tokens, *[family.thought(THOUGHT, "It is 42.")] * 8)
    columns = dict(prompts=["A"] * 8, completions=texts, completion_ids=ids, checklist=[["Is it so?"]] * 8)
    with pytest.raises(SampleError, match="8 of 8 completions start with the special token '<|lane_a|>', which"):
        reward_by(tokenizer=tokens)(**columns)
    tagged = reward_by(tokenizer=tokens, thinking_tags=("<|lane_a|>", "<|lane_b|>"))
    assert {sample.target for sample in tagged._samples(Call(["A"] * 8, texts, columns), None)} == {"It is 42."}
    assert reward_by(tokenizer=tokens, thinking_tags=())(**columns) == pytest.approx([0.5] * 8)


@pytest.mark.parametrize("name", names(KNOWN))
def test_a_reward_for_a_policy_without_thoughts_judges_all_that_it_writes(name):
    """With token ids and without, closed or not: nothing is taken for a thought, and nothing is refused."""
    family = FAMILIES[name]
    tokens = tokenizer(family)
    ids, texts = encoded(tokens, family.thought(THOUGHT, "It is 42."), family.cut_thought(THOUGHT))
    reward = reward_by(tokenizer=tokens, thinking_tags=())
    prompts = [user(content(family, "Hi"))] * 2
    for columns in ({"completion_ids": ids}, {}):
        finished, cut = reward._samples(Call(prompts, texts, {"checklist": [["Is it so?"]] * 2, **columns}), None)
        assert (finished.state, cut.state) == ("answered", "answered")
        assert "It is 42." in finished.target and THOUGHT in cut.target


# --- the same text wherever a completion comes from


@pytest.mark.parametrize("name", names(KNOWN))
def test_frameworks_that_decode_with_special_tokens_judge_the_answer(name):
    """OpenRLHF and AReaL, with the policy's tokenizer and, where no marker is ordinary text, without."""
    family = FAMILIES[name]
    tokens = tokenizer(family)
    prompt = tokens.apply_chat_template(
        user(content(family, "How many?")), tokenize=False, add_generation_prompt=True, **family.kwargs
    )
    answered, cut = family.thought(THOUGHT, "It is 42."), family.cut_thought(THOUGHT)
    for known in [True] if name in WORDED else [True, False]:
        backend = FakeBackend()
        reward = ChecklistRewardFunc(scorer_by(backend), tokenizer=tokens if known else None)
        found = reward([prompt + answered, prompt + cut], [prompt] * 2, [LABEL] * 2)
        assert found["rewards"].tolist() == [0.5, 0.0]
        assert [judged_text(prefix) for prefix, _ in backend.asked] == ["It is 42."]


@pytest.mark.parametrize("name", sorted(WORDED))
def test_thoughts_of_earlier_answers_are_found_with_the_markers_of_the_policy(name):
    family = FAMILIES[name]
    settings = dict(tokenizer=tokenizer(family), scorer=scorer_by())
    earlier = {"role": "assistant", "content": family.thought(THOUGHT, "It is 42.", rendered=False)}
    prompt = [*user("How many?"), earlier, *user("Sure?")]
    columns = {"checklist": [["Is it so?"]]}
    [by_trl] = ChecklistReward(**settings)._samples(Call([prompt], [family.end], columns), None)
    [by_label] = SamplewiseReward(**settings).samples([LABEL], ["Yes."], [prompt], special=True, rendered=[prompt])
    for sample in (by_trl, by_label):
        assert sample.history.split() == ["user:", "How", "many?", "assistant:", "It", "is", "42."]


def test_markers_that_nothing_shows_are_refused_or_found(tmp_path):
    cells = matrix(HIDDEN, "GRPO", tmp_path)
    assert not faults(cells, REFUSED)
    rows = cases(HIDDEN, "chat")
    for case, what in zip(rows, seen(HIDDEN, "GRPO", "chat", rows, tmp_path), strict=True):
        assert cell(HIDDEN, case, what) == RIGHT or str(what.error).endswith(".")


def test_the_documentation_lists_every_family():
    page = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"\w+", page.partition(_BEGIN)[2])
    assert [name for name in FAMILIES if name not in listed] == []


# --- the matrix as a table


PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
_BEGIN, _END = "<!-- families: begin -->\n", "<!-- families: end -->\n"


def row_of(families: Sequence[Family], cells: Mapping[Trainer, Mapping[str, Mapping[str, str]]]) -> str:
    """Families with equal markers as a line of the table, with how many groups of cases are right per trainer."""
    shown = []
    for of_trainer in cells.values():
        texts = [text for family in families for text in of_trainer.get(family.name, {}).values()]
        right, refused = texts.count(RIGHT), texts.count(REFUSED)
        shown.append(f"{right} of {len(texts)}{f', {refused} refused' if refused else ''}" if texts else ABSENT)
    opens, drops = families[0].tag.replace("|", "\\|").replace("\n", " "), families[0].drops_markers
    names = ", ".join(family.name for family in families)
    return f"| `{opens}` | {'yes' if drops else 'no'} | {names} | {' | '.join(shown)} |\n"


def table() -> str:
    """The table of the page."""
    folder = Path(tempfile.mkdtemp())
    some = [*(FAMILIES[name] for name in FIVE), *INVENTED]
    rows: dict[Trainer, Sequence[Family]] = {"GRPO": (*KNOWN, *INVENTED), "RLOO": some, "OnlineDPO": some}
    cells = {
        trainer: {family.name: matrix(family, trainer, folder) for family in families}
        for trainer, families in rows.items()
    }
    alike: dict[tuple[str, bool], list[Family]] = {}
    for family in FAMILIES.values():
        alike.setdefault((family.tag, family.drops_markers), []).append(family)
    text = "| opening marker | dropped by decoding | families | GRPO | RLOO | OnlineDPO |\n|---|---|---|---|---|---|\n"
    return text + "".join(row_of(families, cells) for families in alike.values())


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    PAGE.write_text(f"{before}{_BEGIN}\n{table()}\n{_END}{after}", encoding="utf-8")
