"""Prompt templates: Markdown files with placeholders, filled in one pass.

A file has a `# System` part (optional, no placeholders) and a `# User` part. The user part is cut into sections at its
`## ` headings; a section that names an optional field which the sample does not have is left out, heading and all. A
field that shares a section with one that the prompt must have is not optional.

    ---
    paper: TICK (arXiv:2410.03608)
    ---
    # System
    Reply with one word, yes or no.
    # User
    ## Response
    {target}
    ## Question
    {question}

The front matter is optional and says where the way of asking comes from. All text that is filled in, but for a judge's
`{question}`, is *data*: it is wrapped in a fence whose tag is derived from the hash of the text itself and never
occurs in it, so the text cannot close its own fence. Substitution is a single pass over the template, so braces inside
data stay what they are.

There are four kinds. A *judge* asks one `{question}` about a `{target}`, a *batch* prompt puts a whole `{checklist}`
to it, a *generator* wants a checklist for an `{input}`, and a *stage* is any other step (merging, tagging, ...), whose
placeholders its caller names. A judge template is split at `{question}`: everything before it is the *prefix*, equal
for all items of a target, so an engine computes it once; the rest, with any sections that follow, is the *tail*. A
template that would break this is refused by the lint, which names file and line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from checklist_rewards.errors import PromptError

Kind = Literal["judge", "batch", "generator", "stage"]

_SAMPLE = ("input", "target", "reference", "history")
ALLOWED: dict[Kind, tuple[str, ...]] = {
    "judge": (*_SAMPLE, "question"),
    "batch": (*_SAMPLE, "checklist"),
    "generator": ("input", "reference", "history", "context", "candidates", "responses", "chosen", "rejected"),
}
"""A stage has no fixed set."""
REQUIRED: dict[Kind, tuple[str, ...]] = {
    "judge": ("target", "question"),
    "batch": ("target", "checklist"),
    "generator": ("input",),
    "stage": (),
}
_LAST = ("question", "checklist")
_QUESTION = "{question}"
_FRONT = re.compile(r"\A---\n(.*?)^---[ \t]*\n", re.MULTILINE | re.DOTALL)

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PART = re.compile(r"^# (System|User)[ \t]*$", re.MULTILINE)
_SECTION = re.compile(r"^(?=## )", re.MULTILINE)
_FENCE_DIGITS = (6, 30)
"""Of a tag, and of the one that replaces it where the text holds it. No text can hold 30 digits of its own hash."""
Fields = Mapping[str, str | int | None]


def fence(name: str, text: str) -> str:
    """Wrap `text` in `<name-NNNNNN>` tags; the number comes from the text's own hash and does not occur in the
    text."""
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), "big")
    labels = (f"{name}-{number % 10**digits:0{digits}d}" for digits in _FENCE_DIGITS)
    label = next(label for label in labels if label not in text)
    return f"<{label}>\n{text}\n</{label}>"


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """One parsed and linted prompt file. Make it with [`load_prompt`] or [`parse_prompt`]."""

    name: str
    kind: Kind
    system: str | None
    sections: tuple[str, ...]
    """The user part, cut at its `## ` headings; joined again they are the user message."""
    paper: str | None = None
    """From the front matter: the paper that this way of asking comes from."""

    @property
    def placeholders(self) -> frozenset[str]:
        """The fields that the template speaks of."""
        return frozenset(name for section in self.sections for name in _PLACEHOLDER.findall(section))

    def render(self, **fields: str | int | None) -> str:
        """The whole user message. `fields` are the placeholders' values; a field that is None is absent, and a number
        is not fenced.

        Raises [`PromptError`] if a field that the template must have is absent.
        """
        self._require(fields)
        return "".join(_fill(section, fields) for section in self._present(fields)).strip("\n")

    def messages(self, **fields: str | int | None) -> list[dict[str, str]]:
        """The chat turn: the system part, where there is one, and the rendered user message."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.render(**fields)}]

    def prefix(self, **fields: str | None) -> str:
        """A judge's user message up to the question: the same string for every item of a target."""
        self._require(fields | {"question": ""})
        before, _, _ = "".join(self._present(fields | {"question": ""})).partition(_QUESTION)
        return _fill(before, fields).lstrip("\n")

    def tail(self, question: str) -> str:
        """A judge's user message from the question on, with the sections that follow it."""
        _, placeholder, after = "".join(self.sections).partition(_QUESTION)
        return _fill(placeholder + after, {"question": question}).rstrip("\n")

    def _present(self, fields: Fields) -> list[str]:
        absent = {name for name in self.placeholders if fields.get(name) is None}
        return [s for s in self.sections if not absent.intersection(_PLACEHOLDER.findall(s))]

    def _require(self, fields: Fields) -> None:
        for section in self.sections:
            names = _PLACEHOLDER.findall(section)
            required = next((name for name in names if name in REQUIRED[self.kind]), None)
            absent = next((name for name in names if fields.get(name) is None), None)
            if required is not None and absent is not None:
                beside = "" if absent in REQUIRED[self.kind] else f" (it is in one section with {{{required}}})"
                raise PromptError(f"{self.name}: the prompt needs {{{absent}}}{beside}, and the sample has none.")


def _fill(section: str, fields: Fields) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        text = fields[name]
        assert text is not None  # sections with an absent field were left out
        return str(text) if name == "question" or isinstance(text, int) else fence(name, text)

    return _PLACEHOLDER.sub(value, section)


def parse_prompt(text: str, kind: Kind, name: str = "prompt") -> PromptTemplate:
    """Parse and lint a template.

    Raises:
        PromptError: with `name` and line, for an unknown or missing placeholder, a placeholder in the system part,
            a repeated `{question}`, or data that comes after the question.
    """
    front, body = split_front_matter(text)
    paper = _paper(front, name) if front else None
    text = "\n" * front.count("\n") + body  # line numbers stay the file's
    parts = list(_PART.finditer(text))
    if parts and parts[-1].group(1) != "User":
        raise PromptError(f"{name}:{_line(text, parts[-1].start())}: the last part must be '# User'.")
    if [p.group(1) for p in parts] not in ([], ["User"], ["System", "User"]):
        raise PromptError(
            f"{name}:{_line(text, parts[0].start())}: a prompt has at most one '# System' then one '# User'."
        )
    user_start = parts[-1].end() if parts else 0
    system = text[parts[0].end() : parts[1].start()].strip() if len(parts) == 2 else None
    _lint(text, user_start, kind, name)
    sections = [s for s in _SECTION.split(text[user_start:]) if s.strip()]
    return PromptTemplate(name, kind, system or None, tuple(sections), paper)


def split_front_matter(text: str) -> tuple[str, str]:
    """The front matter of a prompt file with its `---` lines ("" if it has none), and the prompt itself."""
    front = _FRONT.match(text)
    return (front.group(), text[front.end() :]) if front else ("", text)


def _paper(front: str, name: str) -> str:
    line = front.strip().removeprefix("---").removesuffix("---").strip()
    key, colon, value = line.partition(":")
    if key.strip() != "paper" or not colon or not value.strip() or "\n" in value:
        raise PromptError(f"{name}:2: front matter is one line, 'paper: ...'; got {line!r:.80}.")
    return value.strip()


def _lint(text: str, user_start: int, kind: Kind, name: str) -> None:
    allowed = ", ".join(f"{{{field}}}" for field in ALLOWED.get(kind, ()))
    seen: list[str] = []
    for match in _PLACEHOLDER.finditer(text):
        field, where = match.group(1), f"{name}:{_line(text, match.start())}"
        if kind in ALLOWED and field not in ALLOWED[kind]:
            raise PromptError(f"{where}: unknown placeholder {{{field}}}; allowed in a {kind} prompt: {allowed}.")
        if match.start() < user_start:
            raise PromptError(f"{where}: {{{field}}} stands in the system part; placeholders belong under '# User'.")
        last = next((name for name in _LAST if name in seen), None)
        if last is not None and kind != "stage":
            raise PromptError(
                f"{where}: {{{field}}} comes after {{{last}}}; the {last} must come last, so that everything "
                "before it is shared by all that is asked about a target."
            )
        seen.append(field)
    for field in REQUIRED[kind]:
        if field not in seen:
            raise PromptError(f"{name}:{_line(text, len(text.rstrip()))}: the placeholder {{{field}}} is missing.")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def prompts_dir() -> Path:
    """Where the packaged prompts are: inside the wheel, or at the top of a source checkout."""
    package = Path(__file__).resolve().parent
    shipped = package / "_prompts"
    return shipped if shipped.is_dir() else package.parent / "prompts"


def load_prompt(prompt: str | Path | PromptTemplate, kind: Kind) -> PromptTemplate:
    """A packaged prompt by name (`"judges/item"`), a file by path (`"my_judge.md"`), or a template as it is.

    Raises [`PromptError`] naming what exists when neither is found.
    """
    if isinstance(prompt, PromptTemplate):
        return prompt
    packaged = prompts_dir() / f"{prompt}.md"
    path = packaged if packaged.is_file() else Path(prompt)
    if not path.is_file():
        known = sorted(str(p.relative_to(prompts_dir()).with_suffix("")) for p in prompts_dir().glob("*/*.md"))
        raise PromptError(f"there is no prompt {prompt!r}: give a path to a Markdown file or one of {known}.")
    return parse_prompt(_text(path), kind, str(path))


def lint_prompt(path: Path, kind: Kind | None = None) -> PromptTemplate:
    """A prompt file, checked for what it is.

    Args:
        path (`Path`): the file.
        kind (`str`, *optional*): judge, batch, generator or stage. Without one its placeholders decide: with
            `{target}` and `{question}` a judge, with `{target}` and `{checklist}` a batch, with `{input}` a generator,
            else a stage.

    Raises [`PromptError`] naming file and line.
    """
    text = _text(path)
    return parse_prompt(text, kind or _kind(text), str(path))


def _kind(text: str) -> Kind:
    fields = set(_PLACEHOLDER.findall(text))
    if "question" in fields and "target" in fields:
        return "judge"
    if "checklist" in fields and "target" in fields:
        return "batch"
    return "generator" if "input" in fields else "stage"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{path}: cannot be read as UTF-8 text ({error}).") from error
