"""Which text the judge reads: every chat format in `GRPOTrainer` and `RLOOTrainer`, with scripted generations.

A case is a prompt, the texts that a model generates for it, and the right outcome. [`faults`] runs the cases of a
family in a real trainer: the trainer renders and tokenizes the prompt, the script replaces its generation, and the
trainer decodes or parses the generated tokens, runs tools, and calls the reward. The engine behind the reward records
its prompts, which contain what the judge saw.
"""

from __future__ import annotations

import itertools
import re
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from checklist_rewards.errors import SampleError
from tests.fakes import FakeBackend
from tests.families import ARGUMENT, Family, model, tokenizer
from tests.jsonl import read_jsonl
from tests.rewards.fakes import reward_by

Algorithm = Literal["GRPO", "RLOO"]
Kind = Literal["chat", "off", "string", "rendered", "parsed", "tools", "environment"]

REFUSED = "refused"
THOUGHT = "Plan: the user asks for a number, so I count the letters of the question first and add them up."
ANSWER = "It is 42."
PREAMBLE = "Let me look it up."
OBSERVATION = " The shelf holds 3 apples."
EVERYTHING = "everything"
"""Argument for which the tool returns more than fits into a completion."""
LENGTH, LENGTH_WITH_TOOLS = 320, 3000
"""`max_completion_length`. A token is a byte or a marker."""


@dataclass(frozen=True)
class Case:
    """A prompt, what a model generates, and what is right."""

    column: str  # what the case is about
    prompt: str | list[dict[str, Any]]  # as in a dataset
    turns: tuple[str, ...]  # text of each generation; what exceeds `max_completion_length` is cut
    answer: str | None = None  # text that the judge must see, up to white space at its ends
    state: str | None = None  # state in the log of a completion that must not reach the judge
    shows: tuple[str, ...] = ()  # words that the target must contain in this order, where `answer` is not given
    hides: tuple[str, ...] = ()  # words that the target must not contain
    given: tuple[str, ...] = ()  # words that the input or the history must contain
    bare: bool = False  # whether input and history must be free of the family's tokens


@dataclass(frozen=True)
class Seen:
    """What became of a case."""

    judged: dict[str, str] | None = None  # target, input and history that the judge saw; None if it was not asked
    reward: float | None = None
    state: str | None = None  # in the log
    error: Exception | None = None  # what was raised instead


def faults(family: Family, folder: Path, algorithm: Algorithm = "GRPO") -> dict[str, str]:
    """By what a case is about, what happened instead of the right outcome: `REFUSED`, or a text."""
    found: dict[str, str] = {}
    for kind in _kinds(family, algorithm):
        rows = cases(family, kind)
        for case, what in zip(rows, _seen(family, kind, rows, folder, algorithm), strict=True):
            if (wrong := _wrong(family, case, what)) is not None:
                found.setdefault(case.column, wrong)
    return found


def _wrong(family: Family, case: Case, what: Seen) -> str | None:
    if what.error is not None:
        return REFUSED if isinstance(what.error, SampleError) else repr(what.error)
    target = None if what.judged is None else what.judged.get("target", "")
    if case.state is not None:
        return None if (target, what.state, what.reward) == (None, case.state, 0.0) else f"{what}"
    if what.judged is None or target is None or what.state not in (None, "answered", "cut"):
        return f"{what}"
    in_order = re.search(".*".join(map(re.escape, case.shows)), target, re.DOTALL)
    hidden = any(words in target for words in case.hides)
    if not in_order or hidden or target.strip() != (case.answer or target.strip()):
        return f"judged {target!r:.70}"
    context = "\n".join(what.judged.get(name, "") for name in ("history", "input"))
    if lost := [words for words in case.given if words not in context]:
        return f"the judge was not given {lost[0]!r}"
    found = [token for token in family.tokens if token in context] if case.bare else []
    return f"the judge was given {found[0]!r}" if found else None


# --- cases


def cases(family: Family, kind: Kind) -> list[Case]:
    """The cases of a family for one kind of run.

    "chat": messages, not parsed. "off": messages, thinking switched off. "string": prompts that are plain text.
    "rendered": prompts that are rendered chat templates. "parsed": messages, and a tokenizer with a response template.
    "tools", "environment": messages, parsed, with a tool.
    """
    asks = _Asks(family)
    if kind == "off":
        return _off(family, asks)
    if kind in ("string", "rendered"):
        return _strings(family, asks, kind == "rendered")
    if kind == "tools":
        return _tools(family, asks)
    if kind == "environment":
        call = family.calling("lookup", {"word": ARGUMENT}, preamble=PREAMBLE)
        turns = (call, family.thought(THOUGHT, ANSWER, after_tool=True))
        return [Case(kind, asks(), turns, ANSWER, given=(OBSERVATION.strip(),))]
    return _messages(family, asks, kind)


class _Asks:
    """Makes the messages of prompts. The last user message of each is unique."""

    def __init__(self, family: Family):
        self.family = family
        self.tokens = tokenizer(family)
        self.numbers = itertools.count(1)

    def __call__(self, *before: tuple[str, str]) -> list[dict[str, Any]]:
        turns = [*before, ("user", self.question())]
        return [
            {"role": role, "content": [{"type": "text", "text": text}] if self.family.blocks else text}
            for role, text in turns
        ]

    def question(self) -> str:
        return f"Question {next(self.numbers)}: what is the number?"

    def rendered(self, **kwargs: Any) -> str:
        return self.tokens.apply_chat_template(self(), tokenize=False, add_generation_prompt=True, **kwargs)


def _messages(family: Family, ask: _Asks, kind: Kind) -> list[Case]:
    mention = f"Put {family.tag} in front, then it is 42."
    seen_mention: dict[str, Any] = {"shows": ("Put ", " in front, then it is 42."), "hides": (THOUGHT[:5],)}
    given = ("Always answer in French.", "Keep it short.")[not family.system :]
    before = [
        ("system", f"Open your reasoning with {family.tag}. Always answer in French."),
        ("user", f"What does {family.tag} mean? Keep it short."),
        ("assistant", "It opens a thought."),
    ][not family.system :]
    again = family.opens + family.thought(THOUGHT, ANSWER)  # the model repeats what the prompt has opened
    variants = (*family.variants, again) if family.opened else family.variants
    parsed = kind == "parsed"
    one, cut = ("parsed", "parsed cut") if parsed else (None, None)
    rows = [
        Case(one or "plain", ask(), (family.plain(ANSWER),), ANSWER),
        Case(one or "thought", ask(), (family.thought(THOUGHT, ANSWER),), ANSWER),
        *(Case(one or "variants", ask(), (text,), ANSWER) for text in variants),
        Case(one or "cut answer", ask(), (family.cut_answer(THOUGHT, "It is 4"),), "It is 4"),
        Case(cut or "cut thought", ask(), (family.cut_thought(THOUGHT),), state="cut_in_thought"),
        Case(cut or "endless", ask(), (family.cut_thought(THOUGHT * LENGTH),), state="cut_in_thought"),
        Case(cut or "empty", ask(), (family.end,), state="empty"),
        Case(one or "mention", ask(), (family.plain(mention),), **seen_mention),
        Case(one or "mention", ask(), (family.thought(THOUGHT, mention),), **seen_mention),
    ]
    if not parsed:
        rows.append(Case("system tag", ask(*before), (family.thought(THOUGHT, ANSWER),), ANSWER, given=given))
    return rows


def _off(family: Family, ask: _Asks) -> list[Case]:
    """Answers where the chat template was told not to think."""
    prompt = ask.rendered(**family.off or {})
    opened = prompt.rfind(family.tag) > max(prompt.rfind(family.closes.strip()), prompt.rfind("what is the number?"))
    answered = bool(family.answer_opens) and prompt.endswith(family.answer_opens)
    text = (family.closes if opened else "") + ("" if answered else family.answer_opens)
    text += ANSWER + family.answer_closes + family.end
    return [Case("thinking off", ask(), (text,), ANSWER)]


def _strings(family: Family, ask: _Asks, rendered: bool) -> list[Case]:
    def case(text: str, **right: Any) -> Case:
        if not rendered:
            return Case("string prompt", ask.question(), (text,), **right)
        prompt = ask.rendered(**family.kwargs)
        words = re.search(r"Question \d+: what is the number\?", prompt)
        assert words is not None, f"{family.name} does not render the user's words"
        return Case("rendered string", prompt, (text,), **right, given=(words.group(),), bare=True)

    return [
        case(family.thought(THOUGHT, ANSWER, rendered=rendered), answer=ANSWER),
        case(family.plain(ANSWER, rendered=rendered), answer=ANSWER),
        case(family.cut_thought(THOUGHT, rendered=rendered), state="cut_in_thought"),
    ]


def _tools(family: Family, ask: _Asks) -> list[Case]:
    call = partial(family.calling, "lookup", {"word": ARGUMENT})
    endless = partial(family.calling, "lookup", {"word": ARGUMENT * LENGTH_WITH_TOOLS})
    first, later = call(preamble=PREAMBLE), call(thought=THOUGHT, preamble=PREAMBLE, after_tool=True)
    too_much = family.calling("lookup", {"word": EVERYTHING}, preamble=PREAMBLE)
    answer = family.thought(THOUGHT, ANSWER, after_tool=True)
    rows = [
        Case("tool rollout", ask(), (first, answer), ANSWER),
        Case("tool rollout", ask(), (call(thought=THOUGHT), later, answer), ANSWER),
        Case("tool rollout", ask(), (call(), family.plain(ANSWER, after_tool=True)), ANSWER),
        Case("tool rollout", ask(), (family.thought(THOUGHT, ANSWER),), ANSWER),
        Case("tool cut", ask(), (first, family.cut_thought(THOUGHT, after_tool=True)), state="cut_in_thought"),
        Case("tool cut", ask(), (family.cut_thought(THOUGHT),), state="cut_in_thought"),
        Case("tool empty", ask(), (first, family.end), state="empty"),
        Case("tool empty", ask(), (family.end,), state="empty"),
        Case("tool call cut", ask(), (endless(preamble=PREAMBLE),), state="unfinished"),
        Case("tool call cut", ask(), (endless(thought=THOUGHT),), state="unfinished"),
        Case("tool call cut", ask(), (first, endless(preamble=PREAMBLE, after_tool=True)), state="unfinished"),
        Case("tool iterations", ask(), (first, later, later), state="unfinished"),  # two iterations are allowed
        Case("tool iterations", ask(), (first, ""), state="unfinished"),  # the last message is a tool result
        Case("tool iterations", ask(), (too_much,), state="unfinished"),  # TRL takes the result back
    ]
    if family.odd_call is not None:
        rows.append(Case("tool call cut", ask(), (family.odd_call,), state="unfinished"))
    return rows


# --- runs


class Shelf:
    """An environment with one tool."""

    def reset(self, **columns: Any) -> str:
        """Begin a rollout."""
        return OBSERVATION

    def lookup(self, word: str) -> str:
        """Look up a word.

        Args:
            word: The word.
        """
        return lookup(word)


def lookup(word: str) -> str:
    """Look up a word.

    Args:
        word: The word.
    """
    return f"{word}: a fruit." * (LENGTH_WITH_TOOLS if word == EVERYTHING else 1)


def _seen(family: Family, kind: Kind, rows: Sequence[Case], folder: Path, algorithm: Algorithm) -> list[Seen]:
    """Run cases in a trainer, in one call of the reward.

    An error of one case is an error of all cases of the call. If the reward did not refuse, the cases run one by one.
    """
    of_tools: dict[str, Any] = {"tools": {"tools": [lookup]}, "environment": {"environment_factory": Shelf}}.get(
        kind, {}
    )
    # TRL sets the response templates that it knows.
    tokens = tokenizer(family, parses=kind == "parsed" or (bool(of_tools) and family.response_template != "trl"))
    backend = FakeBackend(lambda prefix, tail: 0.9)
    log = Path(tempfile.mkdtemp(dir=folder)) / "log.jsonl"
    reward = reward_by(backend, log=log)
    kwargs = dict(family.off or {}) if kind == "off" else dict(family.kwargs)
    batch = [({"prompt": row.prompt, "checklist": [_question(place)]}, row.turns) for place, row in enumerate(rows)]
    if len(rows) % 2:  # groups have two completions
        whole = _Asks(family)(("user", "Hi"), ("assistant", "Hi"))
        prompt = "Say nothing." if isinstance(rows[0].prompt, str) else whole
        batch.append(({"prompt": prompt, "checklist": [_question(len(rows))]}, (family.plain("Nothing."),)))
    try:
        settings = {"chat_template_kwargs": kwargs, "algorithm": algorithm}
        rolled_out(family, tokens, reward, batch, folder, **settings, **of_tools)
    except Exception as error:
        if isinstance(error, SampleError) or len(rows) == 1:
            return [Seen(error=error)] * len(rows)
        return [_seen(family, kind, [row], folder, algorithm)[0] for row in rows]
    lines, last = read_jsonl(log), reward.last
    return [
        Seen(_judged(backend, _question(place)), last.rewards[place], lines[place].get("state"))
        for place in range(len(rows))
    ]


def _kinds(family: Family, algorithm: Algorithm) -> list[Kind]:
    kinds: list[Kind] = ["chat", "string", "rendered"]
    if family.response_template is not None and not family.declares:
        kinds.append("parsed")
    if algorithm == "RLOO":  # it has no tools
        return kinds
    kinds += ["off"] if family.off is not None else []
    return kinds + (["tools", "environment"] if family.call is not None else [])


def _question(place: int) -> str:
    return f"Is answer {place} right?"


def _judged(backend: FakeBackend, question: str) -> dict[str, str] | None:
    prefix = next((prefix for prefix, tail in backend.asked if tail.startswith(question)), None)
    if prefix is None:
        return None
    fenced = re.finditer(r"<(target|input|history)-(\d+)>\n(.*?)\n</\1-\2>", prefix, re.DOTALL)
    return {match.group(1): match.group(3) for match in fenced}


def rolled_out(
    family: Family,
    tokens: Any,
    rewards: Any,
    batch: Sequence[tuple[dict[str, Any], Sequence[str]]],
    folder: Path,
    *,
    chat_template_kwargs: dict[str, Any],
    algorithm: Algorithm = "GRPO",
    **of_tools: Any,
) -> tuple[Any, dict[str, Any]]:
    """A step on scripted generations, two in a group: the trainer, and what it computed.

    Args:
        batch: Rows of a dataset, and the text of each turn that the policy writes. Two calls of tools are allowed.
        of_tools: `tools` or `environment_factory` of the trainer.
    """
    import trl
    from datasets import Dataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = getattr(trl, f"{algorithm}Trainer")(
            model=model(family, tokens),
            reward_funcs=rewards,
            processing_class=tokens,
            train_dataset=Dataset.from_list([dict.fromkeys(batch[0][0], "")]),
            args=getattr(trl, f"{algorithm}Config")(
                output_dir=str(folder),
                use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
                bf16=False,  # generations are scripted, so the precision does not matter
                save_strategy="no",  # no checkpoint is read
                per_device_train_batch_size=len(batch),
                max_steps=1,
                max_completion_length=LENGTH_WITH_TOOLS if of_tools else LENGTH,
                num_generations=2,
                chat_template_kwargs=chat_template_kwargs,
                beta=0.0,  # RLOO's default loads a second model
                **({"max_tool_calling_iterations": 2} if of_tools else {}),
            ),
            **of_tools,
        )
        prompts: list[list[int]] = []
        turns = [iter(texts) for _, texts in batch]

        def generate(prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
            if not prompts:
                prompts.extend(map(list, prompt_ids))
            # A prompt after calls of tools begins with the first prompt of its row.
            places = [next(n for n, start in enumerate(prompts) if ids[: len(start)] == start) for ids in prompt_ids]
            texts = [next(turns[place]) for place in places]
            written = [tokens(text, add_special_tokens=False)["input_ids"] for text in texts]
            cut = [ids[: made.max_completion_length] for ids in written]
            return cut if algorithm == "RLOO" else (cut, None)

        made._generate_single_turn = generate
        made.model.train()
        return made, made._generate_and_score_completions([row for row, _ in batch])
