"""Files for reports: scored rows, a reward log, pairs."""

import base64
import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from checklist_rewards import Checklist
from checklist_rewards.scores import Reason, Unanswered, Verdict, score_checklist

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
CHECKLIST = Checklist.parse(
    [
        "Is it polite?",
        {"question": "Does it insult?", "weight": -2.0},
        {"question": "Is it true?", "required": True, "category": "facts"},
        {"question": "Are all numbers right?", "category": "facts"},
        {
            "question": "How clear is it?",
            "options": [
                {"label": "unclear", "value": 0},
                {"label": "fair", "value": 0.5},
                {"label": "clear", "value": 1},
            ],
        },
    ]
)
QUESTIONS = CHECKLIST.model_dump(mode="json")["items"]
WORDS = "the a answer source number fact clear rain river stone glass green slow bright under over with people".split()


def write(path: Path, rows) -> Path:
    """Write rows to a file, whose folder may be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    return path


def verdicts(rng: random.Random, labels: list[str], checklist: Checklist, judge: str) -> list[Verdict]:
    """Answers of a judge that is better than chance and at times gives none."""
    result = []
    for item, truth in zip(checklist.items, labels, strict=True):
        if rng.random() < 0.02:
            result.append(Verdict(unanswered=Unanswered(Reason.TIMEOUT, "60 s"), judge=judge))
            continue
        shares = [rng.random() + 0.6 * (label == truth) for label in item.values]
        probabilities = {label: share / sum(shares) for label, share in zip(item.values, shares, strict=True)}
        result.append(Verdict(probabilities, mass=0.9 + 0.1 * rng.random(), judge=judge, method="logprobs"))
    return result


def text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(5, 40)))


def scored_rows(
    count: int, judge: str = "one", seed: int = 0, checklist: Checklist = CHECKLIST
) -> Iterator[dict[str, Any]]:
    """Scored rows. The texts depend on the number of the row only, the answers on the seed too."""
    texts, answers = random.Random(1), random.Random(seed)
    listed = checklist.model_dump(mode="json")["items"]
    for number in range(count):
        target = HOSTILE if number == 3 else text(texts)
        labels = [texts.choice(list(item.values)) for item in checklist.items]
        given = verdicts(answers, labels, checklist, judge)
        yield {
            "id": f"r{number}",
            "prompt": f"Tell me about {texts.choice(WORDS)}.",
            "target": target,
            "checklist": listed,
            "labels": labels,
            "checklist_score": score_checklist(checklist, given).model_dump(mode="json"),
        }


def quoting_rows() -> Iterator[dict[str, Any]]:
    """One row answered by judges that quote the response, and also words that must not be marked as evidence."""
    checklist = Checklist.parse(["Is it polite?", "Does it have a number?"])
    reasoning = (
        'It says "you are wrong" and \'nonsense\'. The answer cannot be "yes"; "sense" and "gone" are no evidence.'
    )
    votes = (Verdict(answer="yes", judge="voter", reasoning="It has “3.5 percent”."), Verdict(answer="no", judge="x"))
    given = [
        Verdict(answer="no", judge="thinker", method="reply", reasoning=reasoning),
        Verdict({"yes": 0.5, "no": 0.5}, answer="yes", judge="voter", method="votes", votes=votes),
    ]
    target = "Oh 😀 yes, you are wrong. That is nonsense: it was 3.5 percent."
    yield {"id": "q1", "target": target, "checklist_score": score_checklist(checklist, given).model_dump(mode="json")}


def annotation(row: dict[str, Any], item: int, text: str, label: str = "no") -> dict[str, Any]:
    """A line of an annotator who marked a text of the response."""
    start = row["target"].index(text)
    asked = row["checklist_score"]["items"][item]
    span = {"start": start, "end": start + len(text), "text": text}
    about = {"file": "quoting.jsonl", "row": row["id"], "item": asked["id"], "question": asked["question"]}
    return {**about, "label": label, "note": "", "spans": [span]}


def shaped_rows() -> list[dict[str, Any]]:
    """A reward log in which a length penalty shapes the scores and one group has two prompts' names."""
    rows = list(reward_rows(steps=6))
    for row in rows:
        if row["score"] is not None:
            score = row["reward"]
            less = score - 0.25
            row["shaping"] = [["expected", score], ["length_penalty", less], ["clipped", max(0.0, less)]]
            row["reward"] = row["shaping"][-1][1]
    return rows


def monitor_rows(steps: int = 6) -> Iterator[dict[str, Any]]:
    """The file of a reward monitor whose shadow judge disagrees from step 3 on."""
    signal = {"name": "shadow_gap", "about": "hacking", "threshold": 0.1, "doc": "Rise of the gap."}
    silent = {"name": "no_answer", "about": "training", "threshold": 0.1, "doc": "Many have no answer."}
    start = {"format": "checklist-rewards-monitor-1", "reward": "r", "step": 0}
    yield {"kind": "start", **start, "signals": [signal, silent]}
    yield {"kind": "canary", "step": 0, "canary": "empty", "prompt": "p", "completion": "", "score": 0.15}
    yield {"kind": "failure", "step": 0, "part": "retests", "error": "AssertionError"}
    for step in range(steps):
        gap = {"now": 0.1 * step, "start": None, "recent": None, "size": 0.1 * step, "error": None, "alarm": step > 2}
        statistics = {"reward_mean": 0.5, "shadow_own": 0.5 + 0.05 * step, "shadow_reward": 0.5}
        yield {"kind": "step", "step": step, "signals": {"shadow_gap": gap}, "statistics": statistics}
    shown = {"prompt": "p", "completion": HOSTILE, "reward": 0.9, "evidence": 0.4, "why": "gap"}
    alarm = {"signal": "shadow_gap", "about": "hacking", "size": 0.3, "threshold": 0.1, "action": "warn"}
    yield {"kind": "alarm", "step": 3, **alarm, "message": "The judge gives more.", "completions": [shown]}


def reward_rows(steps: int = 12, groups: int = 2, size: int = 4, seed: int = 0) -> Iterator[dict[str, Any]]:
    """A reward log in which the policy learns to mention a word, and keeps failing to end with a question."""
    rng = random.Random(seed)
    for step in range(steps):
        for group in range(groups):
            word = WORDS[(step * groups + group) % 6]
            checklist = Checklist.parse([f'Does it mention the word "{word}"?', "Does it end with a question?"])
            for number in range(size):
                p = [min(0.99, 0.05 + 0.9 * step / steps + 0.05 * rng.random()), 0.2 * rng.random()]
                both = [Verdict({"yes": each, "no": 1 - each}, mass=1.0, judge="pocket") for each in p]
                whole = score_checklist(checklist, both)
                missing = step == 2 and group == 0 and number == 0
                yield {
                    "step": step,
                    "prompt": [{"role": "user", "content": f"Write about {word}."}],
                    "completion": text(rng),
                    "reward": None if missing else whole.primary_score,
                    "score": None if missing else whole.model_dump(),
                }


def pair_rows(count: int = 3) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "prompt": f"Prompt {number}",
            "chosen": f"good {number}",
            "rejected": HOSTILE,
            "score_chosen": 0.9,
            "score_rejected": 0.1 * number,
            "checklist": QUESTIONS,
            "flipped": [{"id": "x", "question": "Is it polite?", "chosen": "yes", "rejected": "no"}],
        }


def stated_rows(steps: int = 6) -> Iterator[dict[str, Any]]:
    """A reward log with two completions of every state per step; from step 3 on, all thoughts are finished."""
    checklist = Checklist.parse(["Is it polite?", {"question": "Does it insult?", "weight": -1.0}])
    read = [Verdict({"yes": p, "no": 1 - p}, mass=0.9, judge="pocket", method="logprobs") for p in (0.8, 0.3)]
    for step in range(steps):
        for number in range(10):
            state = ("answered", "cut", "empty", "cut_in_thought", "unfinished")[number % 5]
            if state == "cut_in_thought" and step > 2:
                state = "answered"
            has = state in ("answered", "cut")
            verdicts = read if has else [Verdict(unanswered=Unanswered(Reason.NO_ANSWER, state))] * 2
            score = score_checklist(checklist, verdicts, state=state)
            yield {
                "step": step,
                "prompt": "Write.",
                "completion": "one two three" if has else "",
                "state": state,
                **({} if has else {"written": HOSTILE}),
                "reward": score.primary_score,
                "score": score.model_dump(mode="json"),
            }


def page_data(path: Path) -> dict[str, Any]:
    """The data of a report's HTML file, with its rows where [`report_data`] has them."""
    packed = re.findall(r'<script id="(?:first|rows)"[^>]*>([^<]*)</script>', path.read_text(encoding="utf-8"))
    first, rows = (json.loads(gzip.decompress(base64.b64decode(one))) for one in packed)
    for file, table in zip(first["files"], rows["tables"], strict=True):
        file["table"] = table
    for compared, pairs in zip(first["comparisons"], rows["pairs"], strict=True):
        compared["pairs"] = pairs
    return {**first, "texts": rows["texts"]}
