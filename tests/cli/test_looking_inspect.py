"""`inspect`: what a scored file tells about its items."""

import json
from pathlib import Path

import pytest

from checklist_rewards.backends.base import Reply
from tests.evaluation.files import scored_file
from tests.jsonl import read_jsonl, write_jsonl
from tests.ui.files import page_data

ITEMS = ["Is it long?", "Is it red?"]
ROWS = [
    {"prompt": "p", "target": text, "checklist": ITEMS, "human": ITEMS[:1]}
    for text in ["long red", "red", "long", "short", "long red", "blue"]
]


def names(prefix: str, tail: str) -> float:
    return 0.9 if ("long" if "long" in tail else "red") in prefix.lower() else 0.1


def figures(run, words: str, **expected):
    """What `inspect` writes with these words, and what it shows."""
    done = run(f"inspect {words} --json items.json --no-embed", **expected)
    return json.loads(Path("items.json").read_text()), done


@pytest.fixture
def scored(run, engine):
    def score(name, rule=names):
        write_jsonl("rows.jsonl", *ROWS)
        engine(rule)
        run(f"score rows.jsonl -o {name} --no-store")
        return name

    return score


def test_figures_in_json_and_on_the_page(run, scored):
    scored("scored.jsonl")
    record, done = figures(run, "scored.jsonl -o items.html")
    assert record["targets"] == 6 and [item["answered"] for item in record["items"]] == [6, 6]
    assert 0 < record["items"][0]["pass_rate"] < 1
    page = page_data(Path("items.html"))
    assert [item["question"] for item in record["items"]] == ITEMS
    shown = page["extra"]["items"]["sections"][0]
    found = {id: (row[0].partition("\n")[0], *row[1:3]) for id, row in zip(shown["ids"], shown["rows"], strict=True)}
    assert found == {one["id"]: (one["question"], 6, {"value": one["pass_rate"]}) for one in record["items"]}
    assert page["extra"]["view"] == "trust" and page["files"][0]["overview"]["rows"] == 6
    is_flagged = [item["question"] for item in record["items"] if item["flags"]]
    assert f"; {len(is_flagged)} flagged." in done.output and ("discr." in done.output) == bool(is_flagged)
    write_jsonl("few.jsonl", *read_jsonl("scored.jsonl")[:2])  # too few targets for a flag
    _, done = figures(run, "few.jsonl")
    assert "; 0 flagged." in done.output and "discr." not in done.output


def test_a_penalty_is_marked_because_it_passes_if_the_answer_is_no(run, engine):
    items = ["Is it long?", {"question": "Is the reply rude?", "weight": -1}]
    write_jsonl("rows.jsonl", *({**row, "checklist": items} for row in ROWS))
    engine(lambda prefix, tail: 0.9 if "long" in tail else 0.1)
    run("score rows.jsonl -o scored.jsonl --no-store")
    record, done = figures(run, "scored.jsonl")
    shown = " ".join(line.split("│")[1].strip() for line in done.output.splitlines() if line.startswith("│"))
    assert "Is the reply rude? (penalty: passes if not)" in shown and "Is it long? (penalty" not in shown
    _, rude = record["items"]
    assert rude["question"] == "Is the reply rude?" and rude["pass_rate"] == 1  # no reply is rude
    run("report scored.jsonl -o report.html")
    assert Path("report.html").read_text(encoding="utf-8").count("A penalty passes if the answer is no.") == 2


def test_a_log_and_a_file_of_another_format_give_the_same(run, scored):
    rows = read_jsonl(scored("scored.jsonl"))
    log = {"step": 0, "prompt": "p", "reward": 0.5}
    logged = (log | {"completion": row["target"], "score": row["checklist_score"]} for row in rows)
    write_jsonl("rewards.jsonl", *logged)
    expected, _ = figures(run, "scored.jsonl")
    for name in (scored("scored.csv"), "rewards.jsonl"):
        assert figures(run, name)[0] == expected


def test_the_meta_checklist_and_people_s(run, scored, engine):
    scored("scored.jsonl")
    asked = engine(lambda prefix, tail: 0.9)
    found = figures(run, "scored.jsonl --meta --human-key human --no-store")[0]["figures"]
    assert found["Meta-checklist, pass rates"]["atomic"] == 1
    assert found["Meta-checklist, pass rates"]["not_leading"] == 0  # a judge that says yes to all says it leads
    assert found["Against people's checklists"]["count MAE"] == 1
    assert len(asked.asked) == 2 * 4 + 2  # one checklist, once, however many rows have it
    engine(lambda prefix, tail: None)
    done = run("inspect scored.jsonl --meta --no-embed --no-store", code=1)
    assert "10 questions of the meta-checklist were not answered" in done.output


def test_completions_of_a_policy_are_sampled_and_scored_first(run, engine):
    fake = engine(names)
    texts = ["long red", "red", "long", "short"]
    fake.generate = lambda prompts, sampling, arrived=None: [[Reply(text, "stop") for text in texts] for _ in prompts]
    rows = [{"prompt": f"Write {n}.", "checklist": ["Is it long?", "Is it red?"]} for n in range(3)]
    write_jsonl("rows.jsonl", *rows, {"prompt": "no checklist", "checklist": None})
    options = "--policy.model pocket --n 4 --model pocket --metric pass --scored scored.jsonl --no-store"
    record, done = figures(run, f"rows.jsonl {options}")
    gradient = record["gradient"]
    assert gradient["prompts"] == 3 and gradient["size"] == 4 and gradient["gradient"]["value"] == 1
    assert gradient["canaries"] and gradient["sentence"] in " ".join(done.stderr.split())
    assert [row["target"] for row in read_jsonl("scored.jsonl")] == texts * 3
    saved = figures(run, "scored.jsonl --group-size 2")[0]["gradient"]
    assert saved["size"] == 2 and 0 < saved["gradient"]["value"] < 1 and saved["canaries"] == {}


def test_prompts_of_the_same_words_with_other_images_or_histories_are_others(run):
    """The completions of each prompt are equally good, those of two prompts are not."""
    row = {"prompt": "What is it?", "target": "A cat.", "checklist": ["Is it right?"]}
    contexts = [{"images": [f"{n}.png"], "history": f"turn {m}"} for n in range(2) for m in range(3)]
    scored_file("s.jsonl", *({**row, **each, "said": [0.1 + n / 8]} for n, each in enumerate(contexts) for _ in "ab"))
    gradient = figures(run, "s.jsonl")[0]["gradient"]
    assert (gradient["prompts"], gradient["size"], gradient["gradient"]["value"]) == (6, 2, 0)


def test_a_scored_column_is_named_where_another_has_an_answer_too(run, engine):
    write_jsonl("rows.jsonl", *({**row, "target": "gold", "output": row["target"]} for row in ROWS))
    engine(names)
    run("score rows.jsonl -o scored.jsonl --no-store --target-key output")
    replies = ['{"wordings": ["Is its length great, is it long?"]}', '{"wordings": ["Has it red?"]}']
    asked = engine(names, replies=replies)
    done = run("inspect scored.jsonl --paraphrases 1 --no-embed --no-store", code=2)
    assert "name the column to score: --target-key output or --target-key target" in " ".join(done.output.split())
    figures(run, "scored.jsonl --paraphrases 1 --no-store --target-key output")
    assert asked.asked and not any("gold" in str(one) for one in asked.asked)


def test_a_text_without_an_answer_is_left_out(run, scored, engine):
    write_jsonl("rows.jsonl", *ROWS, {**ROWS[0], "target": " "}, {**ROWS[0], "target": ""})
    engine(lambda prefix, tail: 0.9)
    run("score rows.jsonl -o scored.jsonl --no-store")
    asked = engine(lambda prefix, tail: 0.9, replies=['{"wordings": ["Is its length great?", "Has it length?"]}'])
    record, done = figures(run, "scored.jsonl --paraphrases 2 --no-store")
    assert (record["targets"], record["no_answer"]) == (6, 2) and "2 without an answer" in done.output
    assert [item["answered"] for item in record["items"]] == [6, 6]
    assert [item["repeats"] for item in record["items"]] == [12, 12]
    assert len(asked.asked) == 5 * 2  # of five different texts, each question in two wordings


def test_repeats_show_what_is_unstable(run, scored):
    scored("scored.jsonl")
    scored("again.jsonl", lambda prefix, tail: 0.9)
    record, _ = figures(run, "scored.jsonl --repeat again.jsonl")
    for item in record["items"]:
        assert item["repeats"] == 6 and item["stability"] == item["pass_rate"]  # only what passed before still agrees
        assert "unstable" in item["flags"]


def test_a_repeated_question_is_shown_by_inspect_report_and_the_app(run, engine):
    rows = [row | {"checklist": ["Is it long?", "Is it red?", "Is it long?"]} for row in ROWS]
    write_jsonl("rows.jsonl", *rows)
    engine(names)
    run("score rows.jsonl -o scored.jsonl --no-store")
    items = figures(run, "scored.jsonl")[0]["items"]
    assert [item["answered"] for item in items] == [6, 6, 6] and items[2]["id"] == f"{items[0]['id']}#2"
    run("report scored.jsonl -o page.html")
    [file] = page_data(Path("page.html"))["files"]
    assert [item["id"] for item in file["overview"]["items"]] == [item["id"] for item in items]
    assert [item["counted"] for item in file["overview"]["items"]] == [6, 6, 6]


def test_answers_in_the_rows_are_no_matter_where_completions_are_sampled(run, engine):
    fake = engine(names, replies=['{"wordings": ["Is its length great, is it long?"]}'])
    fake.generate = lambda prompts, sampling, arrived=None: [
        [Reply(text, "stop") for text in ("long", "short")] for _ in prompts
    ]
    write_jsonl("rows.jsonl", {"prompt": "Write.", "checklist": ["Is it long?"], "output": "old"})
    figures(run, "rows.jsonl --policy.model pocket --n 2 --model pocket --scored scored.jsonl --no-store")
    assert [(row["target"], row["output"]) for row in read_jsonl("scored.jsonl")] == [
        ("long", "old"),
        ("short", "old"),
    ]
