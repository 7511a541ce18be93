"""Prompt templates: Markdown files with placeholders, filled in one pass.

A file has an optional `# System` part without placeholders, and a `# User` part. The user part is split into sections
at its `## ` headings. A section is omitted, with its heading, if it uses an optional field that the sample lacks. A
field in the same section as a required field is required too.

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

The optional front matter cites the paper on which the prompt is based. All substituted text except a judge's
`{question}` is *data*: it is enclosed in tags derived from the hash of the text itself. These tags never occur in the
text, so the text cannot close them. Substitution is a single pass over the template, so braces inside data are left
unchanged.

There are four kinds of prompt. A *judge* prompt asks one `{question}` about a `{target}`. A *batch* prompt asks a
whole `{checklist}` about it. A *generator* prompt asks for a checklist for an `{input}`. A *stage* prompt is any other
step (merging, tagging, ...), with placeholders that the calling code defines. A judge template is split at
`{question}`. Everything before it is the *prefix*, which is the same for all items of a target, so an engine computes
it once. The rest, including any sections that follow, is the *tail*. A template that cannot be split in this way is
rejected with an error that names file and line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Literal

from checklist_rewards.errors import ConfigError, PromptError
from checklist_rewards.files.documents import read_text
from checklist_rewards.validation import three_of

Kind = Literal["judge", "batch", "generator", "stage"]

_SAMPLE = ("input", "target", "reference", "history")
ALLOWED: dict[Kind, tuple[str, ...]] = {
    "judge": (*_SAMPLE, "question"),
    "batch": (*_SAMPLE, "checklist"),
    "generator": ("input", "reference", "history", "context", "candidates", "responses", "chosen", "rejected"),
}
"""The placeholders allowed for each kind; a stage prompt may use any."""
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
"""Digits of a tag, and of the longer tag used if the text contains the first one. No text can contain 30 digits of
its own hash."""
Fields = Mapping[str, str | int | None]


class Growing(str):
    """A text whose tags are numbered by its `opening`, so that prompts with longer and longer texts of one
    conversation start with each other."""

    opening: str

    @classmethod
    def of(cls, text: str, opening: str) -> Growing:
        """The text, with what all texts of the conversation start with."""
        growing = cls(text)
        growing.opening = opening
        return growing


def fence(name: str, text: str) -> str:
    """Enclose `text` in `<name-NNNNNN>` tags. The number is derived from the hash of the text, or of the opening of a
    [`Growing`] one unless what follows the opening has its tags; the tag does not occur in the text."""
    hashed = text.opening if isinstance(text, Growing) else text
    number = int.from_bytes(hashlib.sha256(hashed.encode("utf-8", "surrogatepass")).digest(), "big")
    for digits in _FENCE_DIGITS:
        label = f"{name}-{number % 10**digits:0{digits}d}"
        if label not in text:
            return f"<{label}>\n{text}\n</{label}>"
    return fence(name, str(text))


def prompt_messages(system: str | None, user: str) -> list[dict[str, str]]:
    """A conversation of one user message, after a system message if there is one."""
    opening = [{"role": "system", "content": system}] if system else []
    return [*opening, {"role": "user", "content": user}]


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A parsed and validated prompt file. Create it with [`load_prompt`] or [`parse_prompt`]."""

    name: str
    kind: Kind
    system: str | None
    sections: tuple[str, ...]
    """The user part, split at its `## ` headings. Joined, the sections are the user message."""
    paper: str | None = None
    """The paper on which the prompt is based, from the front matter."""

    @property
    def placeholders(self) -> frozenset[str]:
        """The fields used in the template."""
        return frozenset(chain.from_iterable(_pieces(section)[1::2] for section in self.sections))

    def render(self, **fields: str | int | None) -> str:
        """Render the whole user message.

        Args:
            **fields: The values of the placeholders. None means that the field is absent. Numbers are not enclosed in
                tags.

        Raises:
            PromptError: If a required field is absent.
        """
        return _fill("".join(self._present(fields)), fields).strip("\n")

    def messages(self, **fields: str | int | None) -> list[dict[str, str]]:
        """Render the prompt as chat messages: the system part, if any, and the user message."""
        return prompt_messages(self.system, self.render(**fields))

    def prefix(self, **fields: str | None) -> str:
        """Render a judge's user message up to the question. The result is the same for every item of a target."""
        before, _, _ = "".join(self._present(fields | {"question": ""})).partition(_QUESTION)
        return _fill(before, fields).lstrip("\n")

    def tail(self, question: str) -> str:
        """Render a judge's user message from the question to the end, including the sections after it."""
        after = "".join(self.sections).partition(_QUESTION)[2]  # without placeholders: the question comes last
        return (question + after).rstrip("\n")

    def _present(self, fields: Fields) -> list[str]:
        """The sections to fill. Raises [`PromptError`] if one lacks a field and has a required one."""
        needed, present = REQUIRED[self.kind], []
        for section in self.sections:
            names = _pieces(section)[1::2]
            absent = [name for name in names if fields.get(name) is None]
            if not absent:
                present.append(section)
            elif required := [name for name in names if name in needed]:
                reason = "" if absent[0] in needed else f" (it is in the same section as {{{required[0]}}})"
                raise PromptError(f"{self.name}: the prompt requires {{{absent[0]}}}{reason}, which the sample lacks.")
        return present


@lru_cache(maxsize=1024)
def _pieces(template: str) -> tuple[str, ...]:
    """The texts of a template and, between them, the names of its placeholders. Cached: a judge fills the same few
    templates for every target."""
    return tuple(_PLACEHOLDER.split(template))


def _fill(template: str, fields: Fields) -> str:
    filled = list(_pieces(template))
    for place in range(1, len(filled), 2):
        name = filled[place]
        value = fields[name]
        assert value is not None  # sections with an absent field were omitted
        filled[place] = str(value) if name == "question" or isinstance(value, int) else fence(name, value)
    return "".join(filled)


def parse_prompt(text: str, kind: Kind, name: str = "prompt") -> PromptTemplate:
    """Parse and validate the content of a prompt file. `name` is the name to use in errors, such as the path.

    Raises:
        PromptError: With `name` and line, for an unknown or missing placeholder, a placeholder in the system part,
            a repeated `{question}`, or data after the question.
    """
    front, body = split_front_matter(text)
    paper = _paper(front, name) if front else None
    text = "\n" * front.count("\n") + body  # keeps the line numbers of the file
    parts = list(_PART.finditer(text))
    if parts and parts[-1].group(1) != "User":
        raise PromptError(f"{name}:{_line(text, parts[-1].start())}: the last part must be '# User'.")
    if [p.group(1) for p in parts] not in ([], ["User"], ["System", "User"]):
        raise PromptError(
            f"{name}:{_line(text, parts[0].start())}: a prompt has at most one '# System', followed by one '# User'."
        )
    user_start = parts[-1].end() if parts else 0
    system = text[parts[0].end() : parts[1].start()].strip() if len(parts) == 2 else None
    _lint(text, user_start, kind, name)
    sections = [s for s in _SECTION.split(text[user_start:]) if s.strip()]
    return PromptTemplate(name, kind, system or None, tuple(sections), paper)


def split_front_matter(text: str) -> tuple[str, str]:
    """Split a prompt file into its front matter, including the `---` lines ("" if none), and the prompt itself."""
    front = _FRONT.match(text)
    return (front.group(), text[front.end() :]) if front else ("", text)


def _paper(front: str, name: str) -> str:
    line = front.strip().removeprefix("---").removesuffix("---").strip()
    key, colon, value = line.partition(":")
    if key.strip() != "paper" or not colon or not value.strip() or "\n" in value:
        raise PromptError(f"{name}:2: front matter must be one line, 'paper: ...'; got {line!r:.80}.")
    return value.strip()


def _lint(text: str, user_start: int, kind: Kind, name: str) -> None:
    allowed = ", ".join(f"{{{field}}}" for field in ALLOWED.get(kind, ()))
    seen: list[str] = []
    for match in _PLACEHOLDER.finditer(text):
        field, where = match.group(1), f"{name}:{_line(text, match.start())}"
        if kind in ALLOWED and field not in ALLOWED[kind]:
            raise PromptError(f"{where}: unknown placeholder {{{field}}}; allowed in a {kind} prompt: {allowed}.")
        if match.start() < user_start:
            raise PromptError(f"{where}: {{{field}}} is in the system part; placeholders belong under '# User'.")
        last = next((name for name in _LAST if name in seen), None)
        if last is not None and kind != "stage":
            raise PromptError(
                f"{where}: {{{field}}} comes after {{{last}}}; the {last} must come last, so that all questions about "
                "a target share the text before it."
            )
        seen.append(field)
    for field in REQUIRED[kind]:
        if field not in seen:
            raise PromptError(f"{name}:{_line(text, len(text.rstrip()))}: the placeholder {{{field}}} is missing.")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def prompts_dir() -> Path:
    """The folder of the packaged prompts: inside the wheel, or at the top of a source checkout."""
    package = Path(__file__).resolve().parent
    shipped = package / "_prompts"
    return shipped if shipped.is_dir() else package.parent / "prompts"


def load_prompt(prompt: str | Path | PromptTemplate, kind: Kind) -> PromptTemplate:
    """Load a prompt.

    Args:
        prompt (`str`, `Path` or [`PromptTemplate`]): The name of a packaged prompt (`"judges/item"`), the path of a
            file (`"my_judge.md"`), or a template, which is returned unchanged.
        kind (`str`): "judge", "batch", "generator" or "stage".

    Raises:
        PromptError: If the prompt is not found or is invalid. The message names the nearest packaged prompts.
    """
    if isinstance(prompt, PromptTemplate):
        return prompt
    path = prompt_file(prompt)
    return parse_prompt(_text(path), kind, str(path))


def prompt_file(prompt: str | Path) -> Path:
    """The file of a packaged prompt or of a path. Raises [`PromptError`] if there is none."""
    packaged = prompts_dir() / f"{prompt}.md"
    path = packaged if packaged.is_file() else Path(prompt)
    if not path.is_file():
        names = sorted(str(p.relative_to(prompts_dir()).with_suffix("")) for p in prompts_dir().glob("*/*.md"))
        raise PromptError(
            f"prompt not found: {prompt!r}; give the path of a Markdown file or the name of a packaged prompt; "
            f"{three_of(str(prompt), names, '`checklist-rewards list prompts`')}."
        )
    return path


def lint_prompt(path: Path, kind: Kind | None = None) -> PromptTemplate:
    """Parse and validate a prompt file. Its kind is by default inferred from the placeholders. Raises [`PromptError`],
    with file and line, if the prompt is invalid."""
    text = _text(path)
    return parse_prompt(text, kind or kind_of_prompt(text), str(path))


def kind_of_prompt(text: str) -> Kind:
    """The kind of a prompt by its placeholders: judge with `{target}` and `{question}`, batch with `{target}` and
    `{checklist}`, generator with `{input}`, otherwise stage."""
    fields = set(_PLACEHOLDER.findall(text))
    if "question" in fields and "target" in fields:
        return "judge"
    if "checklist" in fields and "target" in fields:
        return "batch"
    return "generator" if "input" in fields else "stage"


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except ConfigError as error:
        raise PromptError(str(error)) from None
