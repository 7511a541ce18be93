"""One completion on all ways to a judge: everywhere it reads the same answer, and nothing of a text without one."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer, Score
from checklist_rewards.backends import Engine
from checklist_rewards.distill.labels import read_labels
from checklist_rewards.evaluation.labels import text_of
from checklist_rewards.evaluation.scored import read_scored
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.judges.questions import FewShot
from checklist_rewards.pipelines import PipelineConfig, assemble
from checklist_rewards.rerank import rerank
from checklist_rewards.rows import score_from
from checklist_rewards.self_refine import Task, refine_batch
from checklist_rewards.server import build_app
from checklist_rewards.ui.annotations import read_tasks
from checklist_rewards.ui.judging import Judging
from checklist_rewards.ui.project import Project
from tests.cli.conftest import read_jsonl, write_jsonl
from tests.fakes import FakeBackend

QUESTION = "Is it free of digits?"
PROMPT = "Say something."
ANSWERED = {
    "The answer.": "The answer.",
    "<think>1, 2, 3</think>\n\nThe answer.": "The answer.",
    "1, 2, 3</think>The answer.": "The answer.",
    "<seed:think>1, 2, 3</seed:think>The answer.": "The answer.",
    "[THINK]1, 2, 3[/THINK]The answer.": "The answer.",
    "◁think▷1, 2, 3◁/think▷The answer.": "The answer.",
    "Put your reasoning into <think> tags.": "Put your reasoning into <think> tags.",
    "Thanks, Anna.\nHere is my response:\nYes, I will come.": "Thanks, Anna.\nHere is my response:\nYes, I will come.",
    "The answer.<|im_end|>": "The answer.",
    "<|im_start|>assistant\nThe answer.</s>\n": "The answer.",
    "The </s> of <s>old</s>": "The </s> of <s>old</s>",
}
WITHOUT = {"": "empty", " \n": "empty", "<think>1, 2, 3</think>": "empty", "<think>1, 2": "cut_in_thought"}


def no_digits(prefix: str, tail: str) -> float:
    return 0.02 if re.search("[0-9]", target_in(prefix)) else 0.98


def target_in(prefix: str) -> str:
    return re.search(r"<target-(\d+)>\n(.*?)\n</target-\1>", prefix, re.DOTALL)[2]


def by_rerank(completion, fake, run):
    return rerank(scorer_on(fake), [QUESTION], [completion], PROMPT).scores[0]


def by_refine(completion, fake, run):
    policy = Engine("m", FakeBackend(replies=[completion]))
    (done,) = refine_batch([Task(PROMPT, [QUESTION])], policy, scorer_on(fake), rounds=0)
    return done.rounds[0].score


def by_pipeline(completion, fake, run):
    pipe = assemble(PipelineConfig(), None, Engine("m", fake), None)
    return pipe.run_batch([{"input": PROMPT, "target": completion}], checklist=[QUESTION])[0].score


def by_page(completion, fake, run):
    engine = Engine("m", fake)
    body = {"input": PROMPT, "target": completion, "checklist": [QUESTION]}
    *_, last = Judging(Project.at("."), PipelineConfig(), {}, engine, engine).score(body)
    return last["score"]


def by_score(completion, fake, run):
    write_jsonl("rows.jsonl", {"prompt": PROMPT, "checklist": [QUESTION], "target": completion})
    assert run("score", "rows.jsonl", "-o", "out.jsonl", "--no-store").exit_code == 0
    return read_jsonl("out.jsonl")[0]["checklist_score"]


def by_rerank_rows(completion, fake, run):
    write_jsonl("rows.jsonl", {"prompt": PROMPT, "checklist": [QUESTION], "candidates": [completion]})
    assert run("rerank", "rows.jsonl", "-o", "out.jsonl", "--no-store").exit_code == 0
    return read_jsonl("out.jsonl")[0]["checklist_scores"][0]


def by_pairs_rows(completion, fake, run):
    write_jsonl("rows.jsonl", {"prompt": PROMPT, "checklist": [QUESTION], "candidates": ["7", completion]})
    assert run("pairs", "rows.jsonl", "-o", "out.jsonl", "--no-store").exit_code == 0
    fake.asked = [asked for asked in fake.asked if target_in(asked[0]) != "7"]
    return None


def by_score_endpoint(completion, fake, run):
    body = {"samples": [{"checklist": [QUESTION], "target": completion, "input": PROMPT}]}
    return posted(fake, "/score", body)["scores"][0]


def by_reward_endpoint(completion, fake, run):
    prompt = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    query = f"{prompt}{completion}<|im_end|>"
    body = {"query": [query], "prompts": [prompt], "labels": [json.dumps([QUESTION])]}
    return {"primary_score": posted(fake, "/reward", body)["rewards"][0]}


def by_decision_about(input):
    def asked(completion, fake, run):
        questions = [{"type": "predicate", "instructions": QUESTION}]
        answer = posted(fake, "/v1/decisions", {"model": "pocket", "input": input(completion), "questions": questions})
        [predicate] = answer["answers"]
        return {"primary_score": predicate.get("probability", predicate["type"]), "state": answer["target_state"]}

    return asked


def by_system_one(completion, fake, run):
    questions = {"a": {"type": "noul", "instructions": QUESTION}}
    answer = posted(fake, "/v1/systemone", {"state": completion, "questions": questions})
    noul = answer["answers"]["a"]
    return {"primary_score": noul.get("noul", noul["type"]), "state": answer["target_state"]}


def scorer_on(fake) -> ChecklistScorer:
    return ChecklistScorer(backend=fake, store=False)


def posted(fake, path, body):
    with TestClient(build_app(scorer_on(fake))) as client:
        answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


WAYS = {
    "rerank": by_rerank,
    "refine": by_refine,
    "pipeline": by_pipeline,
    "page": by_page,
    "score rows": by_score,
    "rerank rows": by_rerank_rows,
    "pairs rows": by_pairs_rows,
    "/score": by_score_endpoint,
    "/reward": by_reward_endpoint,
    "/v1/decisions, text": by_decision_about(lambda text: text),
    "/v1/decisions, state": by_decision_about(lambda text: {"target": text, "input": PROMPT}),
    "/v1/decisions, messages": by_decision_about(
        lambda text: [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": text}]
    ),
    "/v1/systemone": by_system_one,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_answer_reaches_the_judge(way, run, engine):
    for completion, answer in ANSWERED.items():
        fake = engine(no_digits)
        score = WAYS[way](completion, fake, run)
        assert [target_in(prefix) for prefix, _ in fake.asked] == [answer], completion
        assert score is None or dumped(score)["primary_score"] == pytest.approx(0.98), completion


@pytest.mark.parametrize("way", WAYS)
def test_a_text_without_an_answer_is_not_judged(way, run, engine):
    for completion, state in WITHOUT.items():
        fake = engine(no_digits)
        score = WAYS[way](completion, fake, run)
        assert fake.asked == [], completion
        if score is not None:
            assert dumped(score)["primary_score"] in (0.0, "refusal"), completion
            assert dumped(score).get("state", state) == state, completion


def dumped(score):
    return score.model_dump() if isinstance(score, Score) else score


# --- one row in files of every format, read by every command


def said(content, role="assistant", **fields):
    return {"role": role, "content": content, **fields}


LOOKS = said("Let me look.", tool_calls=[{"function": {"name": "look", "arguments": {"word": "a"}}}])
SHAPES = {
    "a text": ("The answer.", "The answer."),
    "a text with a thought": ("<think>1, 2</think>The answer.", "The answer."),
    "a message": ([said("The answer.")], "The answer."),
    "a message with a thought": ([said("<think>1, 2</think>The answer.")], "The answer."),
    "a message with a parsed thought": ([said("The answer.", reasoning_content="1, 2")], "The answer."),
    "several messages": ([LOOKS, said("12", "tool"), said("The answer.")], "The answer."),
    "messages without content": ([{**LOOKS, "content": None}, said("12", "tool"), said("Done.")], "Done."),
    "parts": ([said([{"type": "text", "text": "The "}, {"type": "text", "text": "answer."}])], "The answer."),
    "another role": ([said("The answer.", "gpt")], "The answer."),
    "ShareGPT": ([{"from": "gpt", "value": "The answer."}], "The answer."),
    "a list in JSON": ('[{"a": 1}]', '[{"a": 1}]'),
    "a mapping in JSON": ('{"role": "admin"}', '{"role": "admin"}'),
    "a list of roles in JSON": ('[{"role": "admin"}]', '[{"role": "admin"}]'),
    "a conversation in JSON, as a text": (
        '[{"role": "user", "content": "Hi"}]',
        '[{"role": "user", "content": "Hi"}]',
    ),
    "the same in quotes": ('"[{\\"role\\": \\"user\\", \\"content\\": \\"Hi\\"}]"',) * 2,
}
PROMPTS = {
    "a text": PROMPT,
    "a message": [said(PROMPT, "user")],
    "parts": [said([{"type": "text", "text": PROMPT}], "user")],
    "another role": [said(PROMPT, "Human")],
    "ShareGPT": [{"from": "human", "value": PROMPT}],
    "messages in JSON": json.dumps([said(PROMPT, "user")]),
}
ROWS = [
    {"id": shape, "prompt": PROMPT, "checklist": [QUESTION], "target": target} for shape, (target, _) in SHAPES.items()
] + [
    {"id": f"prompt: {name}", "prompt": prompt, "checklist": [QUESTION], "target": "."}
    for name, prompt in PROMPTS.items()
]
ANSWERS = [answer for _, answer in SHAPES.values()] + ["."] * len(PROMPTS)


def rows_as(kind: str, rows=ROWS, name="rows") -> str:
    """The rows in a file of a kind."""
    path = f"{name}.{kind}"
    with write_rows(path) as out:
        for row in rows:
            out.write(row)
    return path


def scored_as(kind: str, run, engine) -> str:
    engine(no_digits)
    assert run("score", rows_as("jsonl"), "-o", "scored.jsonl", "--no-store").exit_code == 0
    return rows_as(kind, [row.data for row in read_rows("scored.jsonl")], f"scored_{kind}")


def judged_by_score(kind, run, engine):
    path = rows_as(kind)
    for output in ("again.csv", "again.parquet", "again.jsonl"):  # what is written is read in the same way
        fake = engine(no_digits)
        done = run("score", path, "-o", output, "--no-store")
        assert done.exit_code == 0, done.output
        inputs = [re.search(r"<input[^>]*>\n(.*?)\n</input", prefix, re.DOTALL)[1] for prefix, _ in fake.asked]
        assert set(inputs) == {PROMPT}
        path = output
    asked = {target_in(prefix) for prefix, _ in fake.asked}
    scores = [score_from(row.data["checklist_score"], "").primary_score for row in read_rows(path)]
    assert scores == [pytest.approx(no_digits(f"<target-1>\n{text}\n</target-1>", "")) for text in ANSWERS]
    assert asked == set(ANSWERS)
    return ANSWERS


def judged_by_distill(kind, run, engine):
    return [pair.target for pair in read_labels(scored_as(kind, run, engine))]


def judged_by_examples(kind, run, engine):
    path = rows_as(kind, [{**row, "label": "yes", "question": QUESTION} for row in ROWS])
    examples = FewShot.load(path, 1).examples
    assert {example.input for example in examples} == {PROMPT}
    return [example.target for example in examples]


def judged_by_annotations(kind, run, engine):
    return [task.target for task in read_tasks(Path(scored_as(kind, run, engine)))]


def judged_by_agree(kind, run, engine):
    other = scored_as(kind, run, engine)
    done = run("agree", "scored.jsonl", other, "--bootstrap", 0)  # refuses two texts of the same id
    assert done.exit_code == 0, done.output
    return [text_of(row.data["target"]) for row in read_scored(other)]


READERS = {
    "score": judged_by_score,
    "distill": judged_by_distill,
    "examples": judged_by_examples,
    "annotations": judged_by_annotations,
    "agree": judged_by_agree,
}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("reader", READERS)
def test_a_row_is_the_same_in_every_file_for_every_command(reader, kind, run, engine):
    raw = reader == "agree"  # compares what is in the rows
    texts = READERS[reader](kind, run, engine)
    assert [*texts] == [text_of(row["target"]) if raw else answer for row, answer in zip(ROWS, ANSWERS, strict=True)]
