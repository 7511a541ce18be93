"""A row in the documented schema of every format of rubrics that people have. The texts are ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

ASK = "Name the capital of Mali."
CHAT = [{"role": "user", "content": ASK}]
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": ASK},
]


@dataclass(frozen=True)
class Sample:
    """What a file of a format must become."""

    items: list[tuple[str, float, str | None]]
    """Per item of the first row: the end of the question, the weight, the category."""
    columns: str = ""
    """The other columns."""
    prompt: Any = ASK
    format: str = "rows"
    name: str = "rows.jsonl"
    metric: str = ""
    """The metric that gives the data set's own score, where it is not that of the format."""


def both(text: str, weight: str, *of_each: dict[str, Any], numbers: Any = (5, -3), **more: Any) -> list[dict]:
    """A criterion that is met and a fault. `of_each` has what differs further."""
    texts = ("Names Bamako.", "Names Timbuktu instead.")
    own = of_each or ({}, {})
    return [{**o, text: t, weight: n, **more} for t, n, o in zip(texts, numbers, own, strict=True)]


def two(category: str | None = None, other: str | None = None, good: float = 5, bad: float = -3) -> list:
    """What becomes of [`both`]."""
    return [("Names Bamako.", good, category), ("Names Timbuktu instead.", bad, other or category)]


QUESTIONS = ["Is Bamako named?", "Is it short?"]


def asked(weights: tuple = (1, 1), categories: tuple = (None, None)) -> list:
    """What becomes of `QUESTIONS`."""
    return list(zip(QUESTIONS, weights, categories, strict=True))


KWARGS = [{}, {"relation": "at least", "num_words": 30, "keyword": None}]
INSTRUCTIONS = {"instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"], "kwargs": KWARGS}
GROUND_TRUTH = [{"instruction_id": INSTRUCTIONS["instruction_id_list"], "kwargs": [None, KWARGS[1]]}]
CHECKS = [('contain "," exactly 0 times?', 1, None), ("have at least 30 words?", 1, None)]
BY_RULE = {"verifier": "rule", "function": "punctuation:no_comma", "parameters": {}}
HUB = [
    {"criterion": "Names Bamako.", "points": 5, "tags": {"verifier": "llm", "function": None, "parameters": None}},
    {"criterion": "punctuation:no_comma", "points": 2, "tags": BY_RULE},
]
HUB_REWARD = {"style": "rubric", "rubrics": HUB, "ground_truth": ""}
LEVELS = {f"score{n}_description": f"Politeness of level {n}." for n in range(1, 6)}
POLITE = "Is the answer polite?"
RAR = [
    {"title": "Capital", "description": "Essential Criteria: Names Bamako.", "weight": 5},
    {"title": "Wrong", "description": "Pitfall Criteria: Names Timbuktu instead.", "weight": -1},
    {"title": "Silence", "description": "Pitfall: The response should not omit the country.", "weight": -1},
]
CONSTRAINTS = {
    ASK: ["Names Bamako.", "Does not name Timbuktu.", ""],
    "Name two towns.": ["Names two.", "Both are towns.", "Names nothing else."],
}
NESTED = [
    {"weight": 1, "requirements": f"Table {n} agrees.", "sub_tasks": [], "task_category": "Result Match"}
    for n in (1, 2)
]
PAPER = [
    {"weight": 3, "requirements": "The code runs.", "sub_tasks": [], "task_category": "Code Execution"},
    {"weight": 1, "requirements": "The result holds.", "sub_tasks": NESTED},
]
SCALED = {"name": "length", "weight": 4.0, "requirement": "Is the length right?", "scale_type": "nominal"}
SCALED |= {"options": [{"label": "Too brief", "value": 0.0}, {"label": "Just right", "value": 1.0}]}
CHARM = json.dumps([*TURNS, {"role": "assistant", "content": "Bamako."}])
INSIGHT = [{"criterion": text, "explanation": "e", "weight": 0.5} for text in ("Names Bamako.", "Says why.")]
DIMENSIONS = {"insight": INSIGHT, "readability": [{"criterion": "Is short.", "explanation": "e", "weight": 1.0}]}
GEVAL = [
    {"score_range": [0, 4], "expected_outcome": "Wrong."},
    {"score_range": [5, 10], "expected_outcome": "Right."},
]
ASSERTED = [
    {"type": "llm-rubric", "value": "Names Bamako.", "weight": 5},
    {"type": "icontains", "value": "bamako"},
    {"type": "not-icontains", "value": "timbuktu"},
]
SAID = [{"role": "user", "content": ASK, "language": "English", "redacted": False}]
OWN = {"id": "mine", "question": "Is Bamako named?", "weight": 2, "category": "c", "required": True}
FILES: dict[str, Any] = {
    "HealthBench": {
        "prompt": TURNS,
        "prompt_id": "1",
        "rubrics": both("criterion", "points", {"tags": ["axis:accuracy"]}, {"tags": ["cluster:context_hedging"]}),
    },
    "HealthBench Professional": {
        "conversation": {"messages": CHAT},
        "rubric_items": both("criterion_text", "points"),
        "physician": "x",
    },
    "RaR-Medicine, RaR-Science": {
        "question": ASK,
        "reference_answer": "Bamako.",
        "rubric_count": 4,
        "rubric_list": ["a"],
        "rubric": RAR,
    },
    "RubricHub": {
        "prompt": CHAT,
        "Rubrics": HUB,
        "reward_model": HUB_REWARD,
        "extra_info": {"reward_model": HUB_REWARD},
    },
    "OpenRubrics": {
        "instruction": ASK,
        "response_a": "x",
        "rubric": "1. Names Bamako. [Hard Rule]\n2. The response is written clearly. [Principle]",
    },
    "ComplexConstraints": [
        {"use_case": "Logistics", "instruction_type": "Negative", "prompt": prompt}
        | {f"criterion_{n}": text for n, text in enumerate(criteria, start=1)}
        for prompt, criteria in CONSTRAINTS.items()
    ],
    "WildChecklists": {
        "prompt": ASK,
        "requirements": "1) Is Bamako named? (importance: 100/100)\n2) Is it short? (importance: 40/100)",
        "chosen": "x",
    },
    "InFoBench": [
        {
            **{"instruction": "Name the capital.", "input": "Mali", "category": "geo"},
            **{"decomposed_questions": QUESTIONS, "question_label": [["Content"], ["Format", "Style"]]},
        }
    ],
    "IFEval, IFBench": {"key": 1, "prompt": ASK, **INSTRUCTIONS},
    "IF_multi_constraints (open-instruct)": {"messages": CHAT, "ground_truth": repr(GROUND_TRUTH), "dataset": "ours"},
    "Nemotron instruction following (NeMo Gym)": {
        "responses_create_params": {"input": CHAT},
        "verifier_metadata": {**INSTRUCTIONS, "grading_mode": "binary"},
    },
    "NeMo Gym multichallenge": {
        "context": "[system]: x",
        "responses_create_params": {"input": TURNS},
        "rubric": [{"question": q, "pass_criteria": yes} for q, yes in zip(QUESTIONS, ("YES", "NO"), strict=True)],
    },
    "MultiChallenge": {
        "AXIS": "MEMORY",
        "CONVERSATION": TURNS,
        "TARGET_QUESTION": QUESTIONS[0],
        "PASS_CRITERIA": "YES",
    },
    "AdvancedIF": [
        {
            "conversation_history": json.dumps(TURNS),
            "benchmark_name": "ours",
            "prompt_metadata": json.dumps({"rubrics": json.dumps(QUESTIONS)}),
        }
    ],
    "ResearchRubrics": {"prompt": ASK, "domain": "geo", "rubrics": both("criterion", "weight", axis="facts")},
    "PRBench": {
        **{"prompt_0": "Hello.", "response_0": "Hello!", "prompt_1": ASK, "response_1": None},
        "rubric": both(
            "title",
            "annotations",
            *({"id": "a"}, {"id": "b"}),
            numbers=[
                {"weight_class": "critically important", "critically_important_weight": 10},
                {"weight_class": "detrimental", "detrimental_weight": -4},
            ],
        ),
    },
    "ProfBench": {
        "task_id": "1",
        "prompt": ASK,
        "rubrics": [
            {
                "criterion_description": text,
                "criterion_type": [kind],
                "criterion_weight": weight,
                "o3_fulfilment": True,
            }
            for text, kind, weight in [("Names Bamako.", "Facts", "Critical"), ("Is short.", "Form", "Additional")]
        ],
    },
    "GDPval": {"task_id": "1", "prompt": ASK, "rubric_json": json.dumps([{"criterion": "Names Bamako.", "score": 5}])},
    "DRACO": {
        "domain": "geo",
        "problem": ASK,
        "answer": json.dumps({"sections": [{"title": "Facts", "criteria": both("requirement", "weight")}]}),
    },
    "PaperBench": {"id": "r", "requirements": "The paper is reproduced.", "weight": 1, "sub_tasks": PAPER},
    "ResearcherBench": [{"question": ASK, "category": "c", "rubric": both("point", "weight", numbers=(3, 1))}],
    "CHARM-100, RiceChem (Autorubric)": {
        "prompt": "Evaluate the responses of a chatbot.",
        "rubric": [SCALED, {"name": "facts", "weight": 10.0, "requirement": "Names Bamako."}],
        "items": [{"submission": CHARM, "description": "Right.", "ground_truth": ["Just right", "MET"]}],
    },
    "DeepResearch Bench": {
        "prompt": ASK,
        "dimension_weight": {"insight": 0.75, "readability": 0.25},
        "criterions": DIMENSIONS,
    },
    "DR Tulu, open-instruct rubrics": {
        "messages": CHAT,
        "ground_truth": json.dumps(
            {"query": ASK, "rubrics": both("description", "weight", {"title": "Capital"}, {"title": "Wrong"})}
        ),
    },
    "ResearchPlanGen": {"Goal": ASK, "Rubric": ["Names Bamako.", "Is short."], "Reference solution": "Bamako."},
    "BiGGen-Bench": {
        **{"capability": "c", "system_prompt": "Be brief.", "input": ASK, "reference_answer": "Bamako."},
        **{"score_rubric": {"criteria": POLITE} | LEVELS, "response": "Bamako!", "human_score": 4},
    },
    "Prometheus Feedback Collection": {
        **{"orig_instruction": ASK, "orig_response": "Bamako!", "orig_reference_answer": "Bamako."},
        **{"orig_criteria": POLITE, "orig_score": "4", "output": "Feedback."},
        **{f"orig_{name}": text for name, text in LEVELS.items()},
    },
    "WildBench": {"conversation_input": SAID, "checklist": QUESTIONS, "references": {"gpt-4": "Bamako."}},
    "Ragas": {"user_input": ASK, "response": "Bamako!", "rubrics": LEVELS},
    "G-Eval (DeepEval)": {
        "name": "Correctness",
        "criteria": "Is the capital right?",
        "evaluation_steps": ["Find the capital.", "Compare it."],
        "rubric": GEVAL,
    },
    "promptfoo": {
        "prompts": ["Name the capital of {{country}}."],
        "tests": [{"vars": {"country": "Mali"}, "assert": ASSERTED}],
    },
    "verl": {
        **{"data_source": "ours", "prompt": CHAT, "ability": "geo", "extra_info": {"index": 0}},
        "reward_model": {"style": "rubric", "ground_truth": "Bamako", "rubrics": both("criterion", "points")},
    },
    "OpenRLHF": {"input": ASK, "label": json.dumps(both("criterion", "weight"))},
    "ms-swift": {"messages": CHAT, "rubrics": QUESTIONS},
    "verifiers (prime-rl)": {
        "prompt": CHAT,
        "answer": "Bamako",
        "info": json.dumps({"rubric": both("criterion", "weight")}),
    },
    "AutoChecklist": {
        **{"index": 0, "input": ASK, "target": "Bamako!"},
        "checklist": {"source_method": "tick", "items": [{"id": "a", "question": QUESTIONS[0], "weight": 100}]},
    },
    "this package": {"prompt": ASK, "checklist": [OWN]},
}
"""The only row of a file, or its rows, or the document of a .json or .yaml file."""
SAMPLES = {
    "HealthBench": Sample(two("accuracy", "context_hedging"), "prompt_id", prompt=TURNS, format="healthbench"),
    "HealthBench Professional": Sample(two(), "physician", prompt=CHAT, format="healthbench_professional"),
    "RaR-Medicine, RaR-Science": Sample(
        [*two("essential", "pitfall", bad=-1), ("should not omit the country.", 1, "pitfall")],
        "reference rubric_count rubric_list",
        format="rar",
    ),
    "RubricHub": Sample(
        [("Names Bamako.", 5, None), ('contain "," exactly 0 times?', 2, None)],
        "extra_info reward_model",
        prompt=CHAT,
        format="rubrichub",
    ),
    "OpenRubrics": Sample([("Names Bamako.", 1, "Hard Rule"), ("written clearly.", 1, "Principle")], "response_a"),
    "ComplexConstraints": Sample(
        [("Names Bamako.", 1, None), ("Does not name Timbuktu.", 1, None)],
        "instruction_type use_case",
        format="complexconstraints",
        name="ComplexConstraints_benchmark_set.csv",
    ),
    "WildChecklists": Sample(asked((100, 40)), "chosen"),
    "InFoBench": Sample(
        asked(categories=("Content", "Format, Style")),
        "category question_label",
        prompt="Name the capital.\n\nMali",
        format="infobench",
        name="InfoBench.json",
    ),
    "IFEval, IFBench": Sample(CHECKS, "key"),
    "IF_multi_constraints (open-instruct)": Sample(CHECKS, "dataset", prompt=CHAT),
    "Nemotron instruction following (NeMo Gym)": Sample(CHECKS, "verifier_metadata", prompt=CHAT),
    "NeMo Gym multichallenge": Sample(asked(), "context", prompt=TURNS),
    "MultiChallenge": Sample(
        [(QUESTIONS[0], 1, "MEMORY")], "AXIS PASS_CRITERIA", prompt=TURNS, format="multichallenge"
    ),
    "AdvancedIF": Sample(asked(), "benchmark_name", prompt=TURNS, name="advancedif.csv"),
    "ResearchRubrics": Sample(two("facts"), "domain"),
    "PRBench": Sample(two(good=10, bad=-4), prompt=TURNS[1:], format="prbench"),
    "ProfBench": Sample([("Names Bamako.", 4, "Facts"), ("Is short.", 1, "Form")], "task_id", format="profbench"),
    "GDPval": Sample(two()[:1], "task_id"),
    "DRACO": Sample(two("Facts"), "domain", format="draco"),
    "PaperBench": Sample(
        [("The code runs.", 0.75, "Code Execution"), *((f"Table {n} agrees.", 0.125, "Result Match") for n in (1, 2))],
        prompt=None,
        name="paper.json",
        metric="weighted",
    ),
    "ResearcherBench": Sample(two(good=3, bad=1), "category", name="questions.json"),
    "CHARM-100, RiceChem (Autorubric)": Sample(
        [("Is the length right?", 4, "length"), ("Names Bamako.", 10, "facts")],
        "description labels target",
        prompt=TURNS,
        format="autorubric",
        name="charm100.json",
        metric="weighted",
    ),
    "DeepResearch Bench": Sample(
        [("Names Bamako.", 0.375, "insight"), ("Says why.", 0.375, "insight"), ("Is short.", 0.25, "readability")],
        "dimension_weight",
        format="deepresearch_bench",
    ),
    "DR Tulu, open-instruct rubrics": Sample(two("Capital", "Wrong"), "ground_truth", prompt=CHAT),
    "ResearchPlanGen": Sample([("Names Bamako.", 1, None), ("Is short.", 1, None)], "reference"),
    "BiGGen-Bench": Sample(
        [(POLITE, 1, None)], "capability labels reference target", prompt=f"Be brief.\n\n{ASK}", format="biggen_bench"
    ),
    "Prometheus Feedback Collection": Sample(
        [(POLITE, 1, None)], "labels output reference target", format="prometheus"
    ),
    "WildBench": Sample(asked(), "references", prompt=SAID),
    "Ragas": Sample([("Which description fits the response best?", 1, None)], "response"),
    "G-Eval (DeepEval)": Sample(
        [("Is the capital right?\n- Find the capital.\n- Compare it.", 1, "Correctness")],
        prompt=None,
        name="geval.json",
    ),
    "promptfoo": Sample(
        [("Names Bamako.", 5, None), ("icontains 'bamako'?", 1, None), ("not-icontains 'timbuktu'?", 1, None)],
        "country",
        name="promptfooconfig.yaml",
    ),
    "verl": Sample(two(), "ability data_source extra_info reward_model", prompt=CHAT, format="verl"),
    "OpenRLHF": Sample(two()),
    "ms-swift": Sample(asked(), prompt=CHAT),
    "verifiers (prime-rl)": Sample(two(), "answer", prompt=CHAT),
    "AutoChecklist": Sample([(QUESTIONS[0], 100, None)], "index target", format="autochecklist"),
    "this package": Sample([(QUESTIONS[0], 2, "c")]),
}
