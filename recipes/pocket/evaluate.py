"""Evaluate the pocket model: `python recipes/pocket/evaluate.py --model checklist_rewards/pocket`.

All figures are measured on held-out words, and three in ten instructions combine families that training never
combines. The judge is evaluated on well-formed, malformed and policy-written texts, with and without the instruction.
The figures are printed, written to `pocket.json`, and inserted into the model card between its two markers.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from english.common import markdown
from pocket import data, policy, repair
from pocket.train import generate, prompt_hashes
from pocket.world import FAMILIES, UNSEEN_PAIRS, Task, parse_question, satisfaction, tasks, write_response

from checklist_rewards import ChecklistScorer
from checklist_rewards.checklists import YES, ChecklistItem
from checklist_rewards.judges import Ask, Judge

REPAIR_TASKS = 128
"""Number of tasks on which revision is measured, which requires long prompts and many replies."""
SKILLS = (
    ("checklist: constraints named", "checklist", "recall"),
    ("checklist: wrong lines", "checklist", "wrong"),
    ("policy: constraints met", "policy", "satisfaction"),
    ("… families combined in training", "policy", "seen_combinations"),
    ("… families never combined in training", "policy", "unseen_combinations"),
    ("revised once, from a correct checklist: constraints met", "repair", "from_checklist"),
    ("revised once, from a correct critique: constraints met", "repair", "from_true_critique"),
    ("revised once, from its own critique: constraints met", "repair", "from_own_critique"),
    ("critique: constraints named", "critique", "recall"),
    ("critique: wrong lines", "critique", "wrong"),
)
"""Rows of the card: name, part of the figures, key."""
START, STOP = "<!-- numbers -->", "<!-- end of numbers -->"


def judge_numbers(judge: Judge, samples: dict[str, list[tuple[Task, str]]], seed: int) -> dict[str, object]:
    """Accuracy by family (also by correct answer), by kind of text, with and without the instruction; label mass."""
    rng, asks, facts = random.Random(seed), [], []
    for kind, texts in samples.items():
        for i, (task, text) in enumerate(texts):
            for question, truth in data.questions_about(rng, task, text):
                item = ChecklistItem(question=question)
                asks.append(Ask(item, text, task.instruction if i % 2 else None))
                facts.append((kind, "with input" if i % 2 else "without input", question, truth))
    right: dict[tuple[str, str], list[bool]] = defaultdict(list)
    masses = []
    for verdict, (kind, shown, question, truth) in zip(judge.answer(asks)[0], facts, strict=True):
        constraint = parse_question(question)
        assert constraint is not None and verdict.probabilities is not None and verdict.mass is not None
        masses.append(verdict.mass)
        of_family = [(constraint.family, "yes" if truth else "no"), (constraint.family, "all")]
        for key in (*of_family, ("", kind), ("", shown), ("", "all")):
            right[key].append((verdict.probabilities[YES] > 0.5) == truth)
    by_family = {f: {k: _share(right[f, k]) for k in ("all", "yes", "no")} for f in FAMILIES}
    return {
        "overall": _share(right["", "all"]),
        "reads": len(right["", "all"]),
        "mass": statistics.fmean(masses),
        "lowest_mass": min(masses),
        "by_text": {k: _share(right["", k]) for k in (*samples, "with input", "without input")},
        "by_family": by_family,
    }


def checklist_numbers(model, tokenizer, held_out: list[Task], sample: bool) -> dict[str, float]:
    """Recall: fraction of the constraints in the checklist. Wrong: fraction of its lines that match no constraint."""
    encoder = data.Encoder(tokenizer)
    chats = [(encoder.checklist.system, encoder.checklist.render(input=t.instruction)) for t in held_out]
    replies = generate(model, tokenizer, chats, sample=sample, max_new_tokens=160)
    named = total = lines = wrong = 0
    for task, reply in zip(held_out, replies, strict=True):
        questions = [re.sub(r"^\d+\. ", "", line) for line in reply.split("\n") if line.strip()]
        parsed = [parse_question(q) for q in questions]
        named, total = named + sum(c in parsed for c in task.constraints), total + len(task.constraints)
        lines, wrong = lines + len(parsed), wrong + sum(c not in task.constraints for c in parsed)
    return {"recall": named / total, "wrong": wrong / max(1, lines)}


def policy_numbers(held_out: list[Task], replies: list[str]) -> dict[str, object]:
    """Gold satisfaction of the policy's responses: all, by family, and apart for families never joined in training."""
    by_family: dict[str, list[bool]] = defaultdict(list)
    seen: dict[bool, list[float]] = {True: [], False: []}
    for task, reply in zip(held_out, replies, strict=True):
        families = {c.family for c in task.constraints}
        seen[not any(pair <= families for pair in UNSEEN_PAIRS)].append(satisfaction(task, reply))
        for c in task.constraints:
            by_family[c.family].append(c.holds(reply))
    return {
        "satisfaction": statistics.fmean(seen[True] + seen[False]),
        "seen_combinations": statistics.fmean(seen[True]),
        "unseen_combinations": statistics.fmean(seen[False]),
        "by_family": {f: _share(by_family[f]) for f in FAMILIES},
    }


def repair_numbers(model, tokenizer, pairs: list[tuple[Task, str]], sample: bool) -> dict[str, object]:
    """Gold score of responses before and after one revision, and the quality of the model's own critiques.

    The feedback is correct verdicts of a checklist, a correct critique, or the model's own critique. A response with
    nothing wrong is not revised from a checklist, as in self-refinement.
    """
    writer = repair.RepairWriter(data.Encoder(tokenizer))

    def revised(name: str, feedbacks: list[str | None]) -> float:
        chats = [writer.chat(name, t, x, f) for (t, x), f in zip(pairs, feedbacks, strict=True) if f is not None]
        replies = iter(generate(model, tokenizer, chats, sample=sample))
        texts = [x if f is None else next(replies) for (_, x), f in zip(pairs, feedbacks, strict=True)]
        return statistics.fmean(satisfaction(t, text) for (t, _), text in zip(pairs, texts, strict=True))

    broken = [[c for c in t.constraints if not c.holds(x)] for t, x in pairs]
    verdicts = [
        repair.verdict_feedback(t.constraints, wrong) if wrong else None
        for (t, _), wrong in zip(pairs, broken, strict=True)
    ]
    truth = [repair.critique(t, x) for t, x in pairs]
    own = generate(model, tokenizer, [writer.chat("refine/critique", t, x) for t, x in pairs], sample=sample)
    correct = [set(_lines(text)) for text in truth]
    written = [_lines(text) for text in own]
    named = sum(len(right & set(lines)) for right, lines in zip(correct, written, strict=True))
    wrong = sum(line not in right for right, lines in zip(correct, written, strict=True) for line in lines)
    return {
        "before": statistics.fmean(satisfaction(t, x) for t, x in pairs),
        "from_checklist": revised("refine/from_checklist", verdicts),
        "from_true_critique": revised("refine/from_critique", truth),
        "from_own_critique": revised("refine/from_critique", own),
        "critique": {
            "recall": named / sum(map(len, correct)),
            "wrong": wrong / max(1, sum(map(len, written))),
        },
    }


def _lines(critique: str) -> list[str]:
    return [line for line in re.split(r"(?<=\.)\s", critique) if line]


def _share(values: list[bool]) -> float:
    return sum(values) / len(values) if values else float("nan")


def measure(model, tokenizer, scorer: ChecklistScorer, n: int, seed: int) -> dict[str, object]:
    """All figures of the card, from `n` held-out tasks."""
    rng = random.Random(seed)
    held_out = tasks(n, seed=seed, split="test")
    chats = [(None, t.instruction) for t in held_out]
    torch.manual_seed(seed)
    sampled, greedy = generate(model, tokenizer, chats), generate(model, tokenizer, chats, sample=False)
    written = [(t, write_response(rng, t, 0.4, "test")) for t in held_out]
    first = held_out[:REPAIR_TASKS]
    samples = {
        "written": written,
        "malformed": [(t, data.spoil(rng, x)) for t, x in written],
        "policy": list(zip(held_out, sampled, strict=True)),
    }
    questions = [{"checklist": [c.question() for c in task.constraints]} for task in held_out]
    gap = policy.measure(scorer, questions, held_out, [[text] for text in sampled])
    return {
        "judge": judge_numbers(scorer.judge, samples, seed),
        "gap_on_policy": {name: gap[name] for name in ("proxy", "gold")},
        "checklist_greedy": checklist_numbers(model, tokenizer, held_out, sample=False),
        "checklist_sampled": checklist_numbers(model, tokenizer, held_out, sample=True),
        "policy_sampled": policy_numbers(held_out, sampled),
        "policy_greedy": policy_numbers(held_out, greedy),
        "repair_greedy": repair_numbers(model, tokenizer, list(zip(first, greedy, strict=False)), sample=False),
        "repair_sampled": repair_numbers(model, tokenizer, samples["policy"][:REPAIR_TASKS], sample=True),
    }


def table(numbers: dict) -> str:
    """The figures as Markdown."""
    j, g, met = numbers["judge"], numbers["gap_on_policy"], numbers["policy_sampled"]["by_family"]
    families = [
        [family, *(f"{a[key]:.3f}" for key in ("all", "yes", "no")), f"{met[family]:.2f}"]
        for family, a in j["by_family"].items()
    ]
    both = {
        part: [numbers[f"{part}_{how}"] for how in ("greedy", "sampled")] for part in ("checklist", "policy", "repair")
    }
    both["critique"] = [of["critique"] for of in both["repair"]]
    skills = [[name, *(f"{of[key]:.3f}" for of in both[part])] for name, part, key in SKILLS]
    return "\n".join(
        [
            f"Judge: {j['overall']:.3f} of {j['reads']} reads correct; mean label mass {j['mass']:.4f}.",
            "By text: " + ", ".join(f"{k} {v:.3f}" for k, v in j["by_text"].items()) + ".",
            "",
            markdown(["family", "judge", "correct answer yes", "correct answer no", "policy meets it"], families),
            "",
            markdown(["", "greedy", "sampled"], skills),
            "",
            f"On the policy's samples, the mean score is {g['proxy']:.3f} by the judge and {g['gold']:.3f} by code.",
        ]
    )


def write_card(folder: Path, numbers: dict) -> None:
    """Insert the table into the card, and the figures into pocket.json."""
    facts_path, card = folder / "pocket.json", folder / "README.md"
    facts = json.loads(facts_path.read_text(encoding="utf-8")) if facts_path.exists() else {}
    facts_path.write_text(json.dumps({**facts, "numbers": numbers}, indent=2) + "\n", encoding="utf-8")
    if card.exists():
        text = card.read_text(encoding="utf-8")
        before, _, rest = text.partition(START)
        card.write_text(f"{before}{START}\n{table(numbers)}\n{STOP}{rest.partition(STOP)[2]}", encoding="utf-8")


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--tasks", type=int, default=400, help="number of held-out tasks (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of tasks and samples (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=3, help="CPU threads (default: %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    facts = json.loads((args.model / "pocket.json").read_text(encoding="utf-8"))
    hashes = prompt_hashes()
    if any(hashes[name] != trained for name, trained in facts["prompts"].items()):
        print("warning: the prompt files differ from those this model was trained on", file=sys.stderr)
    scorer = ChecklistScorer(str(args.model), backend="transformers", mass_floor=0, no_answer="judge", store=False)
    numbers = measure(model, tokenizer, scorer, args.tasks, args.seed)
    print(table(numbers))
    write_card(args.model, numbers)


if __name__ == "__main__":
    main()
