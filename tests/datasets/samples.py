"""One or two rows in the documented schema of every format of rubrics that people have. The texts are ours."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
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
    """A file of a format, and what it must become."""

    rows: Any
    """The rows, or the document of a .json or .yaml file."""
    items: list[tuple[str, float, str | None]]
    """Per item of the first row: the end of the question, the weight, the category."""
    name: str = "rows.jsonl"
    options: dict[str, Any] = field(default_factory=dict)
    prompt: Any = ASK
    format: str = "rows"
    columns: tuple[str, ...] = ()
    """The other columns."""
    metric: str = ""
    """The metric that gives the data set's own score, where it is not that of the format."""


def weighted(text: str, weight: str, **more: Any) -> list[dict[str, Any]]:
    return [{text: "Names Bamako.", weight: 5, **more}, {text: "Names Timbuktu instead.", weight: -3, **more}]


TWO = [("Names Bamako.", 5, None), ("Names Timbuktu instead.", -3, None)]
INSTRUCTIONS = {
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{}, {"relation": "at least", "num_words": 30, "keyword": None}],
}
CHECKS = [('contain "," exactly 0 times?', 1, None), ("have at least 30 words?", 1, None)]
RULE = {
    "criterion": "punctuation:no_comma",
    "points": 2,
    "tags": {"verifier": "rule", "function": "punctuation:no_comma", "parameters": {}},
}
LLM = {"criterion": "Names Bamako.", "points": 5, "tags": {"verifier": "llm", "function": None, "parameters": None}}
LEVELS = {
    "criteria": "Is the answer polite?",
    **{f"score{n}_description": f"Politeness of level {n}." for n in range(1, 6)},
}

SAMPLES: dict[str, Sample] = {
    "HealthBench": Sample(
        [
            {
                "prompt": TURNS,
                "prompt_id": "1",
                "example_tags": [],
                "ideal_completions_data": None,
                "rubrics": [
                    {"criterion": "Names Bamako.", "points": 5, "tags": ["level:example", "axis:accuracy"]},
                    {
                        "criterion": "Names Timbuktu instead.",
                        "points": -3,
                        "tags": ["level:cluster", "cluster:context_hedging"],
                    },
                ],
            }
        ],
        [("Names Bamako.", 5, "accuracy"), ("Names Timbuktu instead.", -3, "context_hedging")],
        prompt=TURNS,
        format="healthbench",
        columns=("example_tags", "ideal_completions_data", "prompt_id"),
    ),
    "HealthBench Professional": Sample(
        [
            {
                "conversation": {"messages": CHAT},
                "rubric_items": weighted("criterion_text", "points"),
                "physician_response": "Bamako.",
            }
        ],
        TWO,
        prompt=CHAT,
        format="healthbench_professional",
        columns=("physician_response",),
    ),
    "RaR-Medicine, RaR-Science": Sample(
        [
            {
                "question": ASK,
                "reference_answer": "Bamako.",
                "question_source": "ours",
                "rubric_count": 4,
                "rubric_list": ["a"],
                "rubric": [
                    {"title": "Capital", "description": "Essential Criteria: Names Bamako.", "weight": 5},
                    {"title": "Wrong", "description": "Pitfall Criteria: Names Timbuktu instead.", "weight": -1},
                    {
                        "title": "Silence",
                        "description": "Pitfall: The response should not omit the country.",
                        "weight": -1,
                    },
                ],
            }
        ],
        [
            ("Names Bamako.", 5, "essential"),
            ("Names Timbuktu instead.", -1, "pitfall"),
            ("should not omit the country.", 1, "pitfall"),
        ],
        format="rar",
        columns=("question_source", "reference", "rubric_count", "rubric_list"),
    ),
    "RubricHub": Sample(
        [
            {
                "prompt": CHAT,
                "Rubrics": [LLM, RULE],
                "reward_model": {"style": "rubric", "rubrics": [LLM, RULE], "ground_truth": ""},
                "extra_info": {"index": 1, "reward_model": {"rubrics": [LLM, RULE]}},
                "data_source": "ours",
            }
        ],
        [("Names Bamako.", 5, None), ('contain "," exactly 0 times?', 2, None)],
        prompt=CHAT,
        format="rubrichub",
        columns=("data_source", "extra_info", "reward_model"),
    ),
    "OpenRubrics": Sample(
        [
            {
                "instruction": ASK,
                "response_a": "x",
                "response_b": "y",
                "winner": "a",
                "rubric": "1. Names Bamako. [Hard Rule]\n2. The response is written clearly. [Principle]",
            }
        ],
        [("Names Bamako.", 1, "Hard Rule"), ("written clearly.", 1, "Principle")],
        columns=("response_a", "response_b", "winner"),
    ),
    "ComplexConstraints": Sample(
        [
            {
                "benchmark_id": f"CIF-{number:03}",
                "prompt": prompt,
                "use_case": "Logistics",
                "instruction_type": "Negative",
                "prompt_style": "Direct",
                **{f"criterion_{n}": text for n, text in enumerate(criteria, start=1)},
            }
            for number, (prompt, criteria) in enumerate(
                [
                    (ASK, ["Names Bamako.", "Does not name Timbuktu.", ""]),
                    ("Name two towns.", ["Names two.", "Both are towns.", "Names nothing else."]),
                ]
            )
        ],
        [("Names Bamako.", 1, None), ("Does not name Timbuktu.", 1, None)],
        name="ComplexConstraints_benchmark_set.csv",
        format="complexconstraints",
        columns=("benchmark_id", "instruction_type", "prompt_style", "use_case"),
    ),
    "WildChecklists": Sample(
        [
            {
                "prompt": ASK,
                "requirements": "1) Is Bamako named? (importance: 100/100)\n2) Is it short? (importance: 40/100)",
                "chosen": "x",
                "rejected": "y",
            }
        ],
        [("Is Bamako named?", 100, None), ("Is it short?", 40, None)],
        columns=("chosen", "rejected"),
    ),
    "InFoBench": Sample(
        [
            {
                "id": "1",
                "instruction": "Name the capital.",
                "input": "Mali",
                "category": "geo",
                "subset": "Easy_set",
                "decomposed_questions": ["Is Bamako named?", "Is it short?"],
                "question_label": [["Content"], ["Format", "Style"]],
            }
        ],
        [("Is Bamako named?", 1, "Content"), ("Is it short?", 1, "Format, Style")],
        name="InfoBench.json",
        prompt="Name the capital.\n\nMali",
        format="infobench",
        columns=("category", "id", "question_label", "subset"),
    ),
    "IFEval, IFBench": Sample([{"key": 1, "prompt": ASK, **INSTRUCTIONS}], CHECKS, columns=("key",)),
    "IF_multi_constraints (open-instruct)": Sample(
        [
            {
                "messages": CHAT,
                "ground_truth": repr(
                    [
                        {
                            "instruction_id": INSTRUCTIONS["instruction_id_list"],
                            "kwargs": [None, INSTRUCTIONS["kwargs"][1]],
                        }
                    ]
                ),
                "dataset": "ours",
            }
        ],
        CHECKS,
        prompt=CHAT,
        columns=("dataset",),
    ),
    "Nemotron instruction following (NeMo Gym)": Sample(
        [
            {
                "responses_create_params": {"input": CHAT},
                "verifier_metadata": {**INSTRUCTIONS, "grading_mode": "binary"},
            }
        ],
        CHECKS,
        prompt=CHAT,
        columns=("verifier_metadata",),
    ),
    "NeMo Gym multichallenge": Sample(
        [
            {
                "context": "[system]: x",
                "responses_create_params": {"input": TURNS},
                "rubric": [
                    {"question": "Is Bamako named?", "pass_criteria": "YES"},
                    {"question": "Is Timbuktu named?", "pass_criteria": "NO"},
                ],
            }
        ],
        [("Is Bamako named?", 1, None), ("Is Timbuktu named?", 1, None)],
        prompt=TURNS,
        columns=("context",),
    ),
    "MultiChallenge": Sample(
        [
            {
                "QUESTION_ID": "1",
                "AXIS": "MEMORY",
                "CONVERSATION": TURNS,
                "TARGET_QUESTION": "Is Bamako named?",
                "PASS_CRITERIA": "YES",
            }
        ],
        [("Is Bamako named?", 1, "MEMORY")],
        prompt=TURNS,
        format="multichallenge",
        columns=("AXIS", "PASS_CRITERIA", "QUESTION_ID"),
    ),
    "AdvancedIF": Sample(
        [
            {
                "conversation_history": json.dumps(TURNS),
                "benchmark_name": "ours",
                "prompt_metadata": json.dumps({"rubrics": json.dumps(["Is Bamako named?", "Is it short?"])}),
            }
        ],
        [("Is Bamako named?", 1, None), ("Is it short?", 1, None)],
        name="advancedif.csv",
        prompt=TURNS,
        columns=("benchmark_name",),
    ),
    "ResearchRubrics": Sample(
        [{"sample_id": "1", "prompt": ASK, "domain": "geo", "rubrics": weighted("criterion", "weight", axis="facts")}],
        [("Names Bamako.", 5, "facts"), ("Names Timbuktu instead.", -3, "facts")],
        columns=("domain", "sample_id"),
    ),
    "PRBench": Sample(
        [
            {
                "prompt_0": "Hello.",
                "response_0": "Hello!",
                "prompt_1": ASK,
                "response_1": None,
                "rubric": [
                    {
                        "id": "a",
                        "title": "Names Bamako.",
                        "annotations": {"weight_class": "critically important", "critically_important_weight": 10},
                    },
                    {
                        "id": "b",
                        "title": "Names Timbuktu instead.",
                        "annotations": {"weight_class": "detrimental", "detrimental_weight": -4},
                    },
                ],
            }
        ],
        [("Names Bamako.", 10, None), ("Names Timbuktu instead.", -4, None)],
        prompt=TURNS[1:],
        format="prbench",
    ),
    "ProfBench": Sample(
        [
            {
                "task_id": "1",
                "prompt": ASK,
                "filepaths": [],
                "rubrics": [
                    {
                        "criterion_description": "Names Bamako.",
                        "criterion_type": ["Facts"],
                        "criterion_weight": "Critical",
                        "o3_fulfilment": True,
                    },
                    {
                        "criterion_description": "Is short.",
                        "criterion_type": ["Style"],
                        "criterion_weight": "Additional",
                        "o3_fulfilment": True,
                    },
                ],
            }
        ],
        [("Names Bamako.", 4, "Facts"), ("Is short.", 1, "Style")],
        format="profbench",
        columns=("filepaths", "task_id"),
    ),
    "GDPval": Sample(
        [
            {
                "task_id": "1",
                "prompt": ASK,
                "reference_files": [],
                "rubric_json": json.dumps(
                    [{"rubric_item_id": "a", "criterion": "Names Bamako.", "score": 5, "required": None, "tags": []}]
                ),
            }
        ],
        [("Names Bamako.", 5, None)],
        columns=("reference_files", "task_id"),
    ),
    "DRACO": Sample(
        [
            {
                "id": "1",
                "domain": "geo",
                "problem": ASK,
                "answer": json.dumps(
                    {
                        "id": "r",
                        "sections": [
                            {
                                "id": "s",
                                "title": "Facts",
                                "criteria": [
                                    {"id": "a", "weight": 5, "requirement": "Names Bamako."},
                                    {"id": "b", "weight": -3, "requirement": "Names Timbuktu instead."},
                                ],
                            }
                        ],
                    }
                ),
            }
        ],
        [("Names Bamako.", 5, "Facts"), ("Names Timbuktu instead.", -3, "Facts")],
        format="draco",
        columns=("domain", "id"),
    ),
    "PaperBench": Sample(
        {
            "id": "r",
            "requirements": "The paper is reproduced.",
            "weight": 1,
            "sub_tasks": [
                {
                    "id": "a",
                    "requirements": "The code runs.",
                    "weight": 3,
                    "sub_tasks": [],
                    "task_category": "Code Execution",
                },
                {
                    "id": "b",
                    "requirements": "The result holds.",
                    "weight": 1,
                    "sub_tasks": [
                        {
                            "id": "c",
                            "requirements": "Table 1 agrees.",
                            "weight": 1,
                            "sub_tasks": [],
                            "task_category": "Result Match",
                        },
                        {
                            "id": "d",
                            "requirements": "Table 2 agrees.",
                            "weight": 1,
                            "sub_tasks": [],
                            "task_category": "Result Match",
                        },
                    ],
                },
            ],
        },
        [
            ("The code runs.", 0.75, "Code Execution"),
            ("Table 1 agrees.", 0.125, "Result Match"),
            ("Table 2 agrees.", 0.125, "Result Match"),
        ],
        name="paper.json",
        prompt=None,
        metric="weighted",
    ),
    "ResearcherBench": Sample(
        [
            {
                "id": 1,
                "question": ASK,
                "category": "c",
                "rubric": [{"point": "Names Bamako.", "weight": 3}, {"point": "Is short.", "weight": 1}],
            }
        ],
        [("Names Bamako.", 3, None), ("Is short.", 1, None)],
        name="questions.json",
        columns=("category", "id"),
    ),
    "CHARM-100, RiceChem (Autorubric)": Sample(
        {
            "name": "charm-100",
            "prompt": "Evaluate the responses of a chatbot.",
            "rubric": [
                {
                    "name": "length",
                    "weight": 4.0,
                    "requirement": "Is the length right?",
                    "scale_type": "nominal",
                    "options": [{"label": "Too brief", "value": 0.0}, {"label": "Just right", "value": 1.0}],
                },
                {"name": "facts", "weight": 10.0, "requirement": "Names Bamako."},
            ],
            "items": [
                {
                    "submission": json.dumps([*TURNS, {"role": "assistant", "content": "Bamako."}]),
                    "description": "Right.",
                    "ground_truth": ["Just right", "MET"],
                }
            ],
        },
        [("Is the length right?", 4, "length"), ("Names Bamako.", 10, "facts")],
        name="charm100.json",
        prompt=TURNS,
        format="autorubric",
        columns=("description", "labels", "target"),
        metric="weighted",
    ),
    "DeepResearch Bench": Sample(
        [
            {
                "id": 1,
                "prompt": ASK,
                "dimension_weight": {"insight": 0.75, "readability": 0.25},
                "criterions": {
                    "insight": [
                        {"criterion": "Names Bamako.", "explanation": "e", "weight": 0.5},
                        {"criterion": "Says why.", "explanation": "e", "weight": 0.5},
                    ],
                    "readability": [{"criterion": "Is short.", "explanation": "e", "weight": 1.0}],
                },
            }
        ],
        [("Names Bamako.", 0.375, "insight"), ("Says why.", 0.375, "insight"), ("Is short.", 0.25, "readability")],
        format="deepresearch_bench",
        columns=("dimension_weight", "id"),
    ),
    "DR Tulu, open-instruct rubrics": Sample(
        [
            {
                "messages": CHAT,
                "dataset": "ours",
                "ground_truth": json.dumps(
                    {
                        "query": ASK,
                        "rubrics": [
                            {"title": "Capital", "description": "Names Bamako.", "weight": 5},
                            {"title": "Wrong", "description": "Names Timbuktu instead.", "weight": -3},
                        ],
                    }
                ),
            }
        ],
        [("Names Bamako.", 5, "Capital"), ("Names Timbuktu instead.", -3, "Wrong")],
        prompt=CHAT,
        columns=("dataset", "ground_truth"),
    ),
    "ResearchPlanGen": Sample(
        [{"Goal": ASK, "Rubric": ["Names Bamako.", "Is short."], "Reference solution": "Bamako."}],
        [("Names Bamako.", 1, None), ("Is short.", 1, None)],
        columns=("reference",),
    ),
    "BiGGen-Bench": Sample(
        [
            {
                "id": "1",
                "capability": "c",
                "system_prompt": "Be brief.",
                "input": ASK,
                "reference_answer": "Bamako.",
                "score_rubric": LEVELS,
                "response": "Bamako!",
                "human_score": 4,
            }
        ],
        [("Is the answer polite?", 1, None)],
        prompt=f"Be brief.\n\n{ASK}",
        format="biggen_bench",
        columns=("capability", "id", "labels", "reference", "target"),
    ),
    "Prometheus Feedback Collection": Sample(
        [
            {
                "orig_instruction": ASK,
                "orig_response": "Bamako!",
                "orig_reference_answer": "Bamako.",
                "orig_criteria": "Is the answer polite?",
                **{f"orig_score{n}_description": f"Politeness of level {n}." for n in range(1, 6)},
                "orig_score": "4",
                "output": "Feedback.",
            }
        ],
        [("Is the answer polite?", 1, None)],
        format="prometheus",
        columns=("labels", "output", "reference", "target"),
    ),
    "WildBench": Sample(
        [
            {
                "id": "1",
                "conversation_input": [
                    {"role": "user", "content": ASK, "language": "English", "redacted": False, "toxic": False}
                ],
                "checklist": ["Is Bamako named?", "Is it short?"],
                "references": {"gpt-4": "Bamako."},
            }
        ],
        [("Is Bamako named?", 1, None), ("Is it short?", 1, None)],
        prompt=[{"role": "user", "content": ASK, "language": "English", "redacted": False, "toxic": False}],
        columns=("id", "references"),
    ),
    "Ragas": Sample(
        [{"user_input": ASK, "response": "Bamako!", "rubrics": {k: v for k, v in LEVELS.items() if k != "criteria"}}],
        [("Which description fits the response best?", 1, None)],
        columns=("response",),
    ),
    "G-Eval (DeepEval)": Sample(
        {
            "name": "Correctness",
            "criteria": "Is the capital right?",
            "evaluation_steps": ["Find the capital.", "Compare it."],
            "rubric": [
                {"score_range": [0, 4], "expected_outcome": "Wrong."},
                {"score_range": [5, 10], "expected_outcome": "Right."},
            ],
        },
        [("Is the capital right?\n- Find the capital.\n- Compare it.", 1, "Correctness")],
        name="geval.json",
        prompt=None,
    ),
    "promptfoo": Sample(
        {
            "prompts": ["Name the capital of {{country}}."],
            "tests": [
                {
                    "vars": {"country": "Mali"},
                    "assert": [
                        {"type": "llm-rubric", "value": "Names Bamako.", "weight": 5},
                        {"type": "icontains", "value": "bamako"},
                        {"type": "not-icontains", "value": "timbuktu"},
                    ],
                }
            ],
        },
        [("Names Bamako.", 5, None), ("icontains 'bamako'?", 1, None), ("not-icontains 'timbuktu'?", 1, None)],
        name="promptfooconfig.yaml",
        columns=("country",),
    ),
    "verl": Sample(
        [
            {
                "data_source": "ours",
                "prompt": CHAT,
                "ability": "geo",
                "reward_model": {
                    "style": "rubric",
                    "ground_truth": "Bamako",
                    "rubrics": weighted("criterion", "points"),
                },
                "extra_info": {"index": 0},
            }
        ],
        TWO,
        prompt=CHAT,
        format="verl",
        columns=("ability", "data_source", "extra_info", "reward_model"),
    ),
    "OpenRLHF": Sample([{"input": ASK, "label": json.dumps(weighted("criterion", "weight"))}], TWO),
    "ms-swift": Sample(
        [{"messages": CHAT, "rubrics": ["Is Bamako named?", "Is it short?"]}],
        [("Is Bamako named?", 1, None), ("Is it short?", 1, None)],
        prompt=CHAT,
    ),
    "verifiers (prime-rl)": Sample(
        [{"prompt": CHAT, "answer": "Bamako", "info": json.dumps({"rubric": weighted("criterion", "weight")})}],
        TWO,
        prompt=CHAT,
        columns=("answer",),
    ),
    "AutoChecklist": Sample(
        [
            {
                "index": 0,
                "input": ASK,
                "target": "Bamako!",
                "checklist": {
                    "id": "1",
                    "source_method": "tick",
                    "items": [{"id": "a", "question": "Is Bamako named?", "weight": 100}],
                },
            }
        ],
        [("Is Bamako named?", 100, None)],
        format="autochecklist",
        columns=("index", "target"),
    ),
    "this package": Sample(
        [
            {
                "prompt": ASK,
                "checklist": [
                    {
                        "id": "mine",
                        "question": "Is Bamako named?",
                        "weight": 2,
                        "category": "c",
                        "required": True,
                        "options": None,
                        "check": None,
                    }
                ],
            }
        ],
        [("Is Bamako named?", 2, "c")],
    ),
}
