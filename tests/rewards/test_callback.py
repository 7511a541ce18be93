"""Held-out prompts during training: the pocket policy in TRL's trainers, a fake engine as judge."""

import json
from types import SimpleNamespace

import pytest
import torch
from tensorboard.backend.event_processing import event_accumulator

from checklist_rewards import ChecklistScorer, Score
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.rewards.callback import ChecklistEvalCallback, as_markdown, show_table, win_rate
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.families import FAMILIES, model, tokenizer
from tests.jsonl import read_jsonl
from tests.ranks import on_two_ranks
from tests.rewards.fakes import asked, by_hash, scorer_by, user
from tests.rewards.test_trl_trainers import rows, trainer_of

HELD_OUT = [
    {**row, "answer": answer} for row, answer in zip(rows(conversational=True, n=3), ["gold", "tin", "x"], strict=True)
]
"""Prompts with a reference; the third has one that cannot be read."""
HELLO = [{"prompt": user("Say hello."), "checklist": ["Is it?"]}]


def gold_is_best(prefix: str, tail: str) -> float | None:
    """The reference "gold" is perfect, "tin" is bad, and "x" cannot be read; answers are in between."""
    if "\nx\n" in prefix:
        return None
    return 1.0 if "\ngold\n" in prefix else 0.0 if "\ntin\n" in prefix else 0.4 + 0.3 * by_hash(prefix, tail)


def trainer_in(folder, rule=gold_is_best, policy=None, **options):
    """A trainer that has not trained yet, and the scorer of its reward."""
    scorer, sizes = scorer_by(rule), {"per_device_train_batch_size": 4, "max_completion_length": 8}
    return trainer_of(ChecklistReward(scorer), folder, **policy or {}, **sizes | options), scorer


def evaluation(trainer, scorer=None, data=HELD_OUT, *, new_tokens=8, **options) -> ChecklistEvalCallback:
    callback = ChecklistEvalCallback(trainer, scorer or scorer_by(gold_is_best), data, **{"every": 1, **options})
    callback.generation.max_new_tokens = new_tokens
    return callback


def evaluations(history, name="held_out/score") -> list[dict]:
    return [entry for entry in history if name in entry]


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """A trainer that never trains, for evaluations of the policy as it is."""
    return trainer_in(tmp_path_factory.mktemp("idle"))[0]


@pytest.fixture
def trainer(idle, tmp_path, monkeypatch):
    """The idle trainer with a folder of its own."""
    monkeypatch.setattr(idle.args, "output_dir", str(tmp_path))
    return idle


@pytest.mark.slow
def test_a_training_run_logs_held_out_scores_beside_its_own(tmp_path):
    trainer, scorer = trainer_in(tmp_path, max_steps=2)
    trainer.add_callback(evaluation(trainer, scorer, reference_column="answer", name="held_out"))
    trainer.train()
    history = trainer.state.log_history
    assert [entry["step"] for entry in evaluations(history)] == [0, 1, 2]
    assert [entry["step"] for entry in evaluations(history, "rewards/checklist_reward/mean")] == [1, 2]
    for entry in evaluations(history):
        assert entry["held_out/win_rate"] == 0.5, "lost against gold, won against tin, the third has no score"
        assert entry["held_out/unscored"] == 0 and not any(key.startswith("rewards/") for key in entry)
    last = evaluations(history)[-1]
    categories = {item["category"] for row in HELD_OUT for item in row["checklist"]}
    assert {key for key in last if "category" in key} == {f"held_out/category/{c}" for c in categories}
    table = read_jsonl(tmp_path / "held_out" / "step_00002.jsonl")
    assert [(row["reference"], row["reference_score"]) for row in table] == [("gold", 1.0), ("tin", 0.0), ("x", None)]
    scores = [row["score"] for row in table]
    assert last["held_out/score"] == pytest.approx(sum(scores) / 3)
    assert [Score.model_validate_json(row["detail"]).primary_score for row in table] == scores
    assert trainer.model.training


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gptoss", "qwen3_5_think"])
def test_answers_are_judged_without_their_thoughts(name, tmp_path):
    family = FAMILIES[name]
    tokens = tokenizer(family)
    policy = {"model": model(family, tokens), "more": {"processing_class": tokens}}
    trainer, scorer = trainer_in(tmp_path, policy=policy, chat_template_kwargs=dict(family.kwargs))
    written = [family.thought("Plan.", "It is 42."), family.cut_thought("Plan: so many"), family.plain("No.")]
    ids = [tokens(text, add_special_tokens=False)["input_ids"] for text in written]
    length = max(map(len, ids))
    callback = evaluation(trainer, scorer, new_tokens=length)
    padded = torch.tensor([row + [tokens.pad_token_id] * (length - len(row)) for row in ids])
    trainer.model.generate = lambda input_ids, **settings: torch.cat([input_ids, padded], dim=1)
    assert callback.evaluate()["checklist_eval/cut_in_thought"] == pytest.approx(1 / 3)
    table = read_jsonl(tmp_path / "checklist_eval" / "step_00000.jsonl")
    assert [(row["completion"].strip(), row["state"]) for row in table] == [
        ("It is 42.", "answered"),
        ("", "cut_in_thought"),
        ("No.", "answered"),
    ]
    assert not any("Plan" in prefix for prefix, _ in asked(trainer.reward_funcs[0]))


@pytest.mark.slow
def test_greedy_answers_do_not_depend_on_the_batch_and_a_judge_that_fails_gives_no_means(trainer, monkeypatch):
    callback = evaluation(trainer, scorer_by(FakeBackend(fails=lambda prefix, tail: True)), new_tokens=64)
    three = callback._answers()
    monkeypatch.setattr(trainer.args, "per_device_eval_batch_size", 1)
    assert callback._answers() == three and all(answer.text for answer in three)
    shares = {f"checklist_eval/{state}": 0.0 for state in ("empty", "cut_in_thought", "cut")}
    assert callback.evaluate() == {"checklist_eval/unscored": 1.0, **shares}


@pytest.mark.slow
def test_an_answer_ends_at_every_end_of_the_policy(trainer, monkeypatch):
    """Gemma 2 closes its turn with a token that is not the `eos_token` of its tokenizer. `SFTTrainer` and `DPOTrainer`
    have no list of the ends, as TRL's online trainers do."""
    monkeypatch.delattr(trainer, "eos_token_ids")
    tokens = trainer.processing_class
    stop = tokens.encode("the.", add_special_tokens=False)[-1]
    monkeypatch.setattr(trainer.model.generation_config, "eos_token_id", [tokens.eos_token_id, stop])
    answers = evaluation(trainer, new_tokens=40)._answers()
    assert any(answer.text.endswith(".") for answer in answers)
    assert all("." not in answer.text[:-1] for answer in answers)


def test_references_that_were_lost_are_read_again_at_the_next_evaluation(trainer):
    down = {"gold", "tin"}
    fails = lambda prefix, tail: any(f"\n{word}\n" in prefix for word in down)  # noqa: E731
    backend = FakeBackend(lambda prefix, tail: 0.9, fails=fails, chunk_reads=1)
    callback = evaluation(trainer, scorer_by(backend), reference_column="answer")
    read: list[list[str]] = []
    for back in ("", "tin", "gold", ""):
        down.discard(back)
        before = len(backend.asked)
        numbers = callback.evaluate()
        new = backend.asked[before:]
        read.append([word for word in ("gold", "tin", "x") if any(f"\n{word}\n" in prefix for prefix, _ in new)])
    assert read == [["x"], ["tin"], ["gold"], []], "each is read until it has an answer, and then not again"
    assert numbers["checklist_eval/win_rate"] == 0.5


@pytest.mark.slow
def test_an_answer_to_a_prompt_that_opens_the_thinking_block_is_thinking_until_it_closes_it(trainer, monkeypatch):
    def answers(prompt=HELLO[0]["prompt"], **options):
        callback = evaluation(trainer, data=[{"prompt": prompt, "checklist": ["Is it?"]}], **options)
        return [answer.text for answer in callback._answers()]

    [whole] = answers()
    assert whole and answers(thinking_opened=True) == answers("Say hello.<think>\n") == [""]
    template = trainer.processing_class.chat_template + "{% if opens %}<think>\n{% endif %}"
    monkeypatch.setattr(trainer.processing_class, "chat_template", template)
    assert answers() == [whole]
    monkeypatch.setattr(trainer, "chat_template_kwargs", {"opens": True})  # as the trainer renders its own prompts
    assert answers() == [""] and answers(keep_thinking=True) != [""]


@pytest.mark.slow
def test_a_table_that_cannot_be_shown_or_written_costs_the_table_only(trainer, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(trainer.args, "report_to", ["trackio"])  # not installed, or without a run
    (tmp_path / "checklist_eval").write_text("a file where the folder should be")
    assert "checklist_eval/score" in evaluation(trainer).evaluate()
    assert "trackio failed to log the table" in caplog.text and "cannot write the table of step 0" in caplog.text


@pytest.mark.slow
def test_a_prompt_without_json_is_described_in_the_table(trainer, tmp_path):
    prompt = [{"role": "user", "content": "Say hello.", "seen": b"GIF89a"}]
    evaluation(trainer, data=[{**HELLO[0], "prompt": prompt}]).evaluate()
    [line] = read_jsonl(tmp_path / "checklist_eval" / "step_00000.jsonl")
    assert json.loads(line["prompt"])[0]["seen"] == "<bytes 6, sha256 610f5ae4d76e3326>"


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ([], SampleError, "no rows"),
        ([{"prompt": "A"}], SampleError, "row 1: column 'checklist' is missing or None; the row has prompt"),
        ([{"prompt": "A", "checklist": []}], ChecklistError, "checklist_eval, row 1.*empty"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_when_it_is_made(data, error, words):
    with pytest.raises(error, match=words):
        ChecklistEvalCallback(None, ChecklistScorer(store=False), data, every=1)


def test_a_second_training_is_evaluated_at_the_step_at_which_the_first_was_last(monkeypatch):
    state = SimpleNamespace(global_step=5)
    trainer = SimpleNamespace(state=state, accelerator=SimpleNamespace(is_main_process=True))
    callback, done = evaluation(trainer, every=5), []
    monkeypatch.setattr(callback, "_answers", list)
    monkeypatch.setattr(callback, "_judged", lambda answers: done.append(state.global_step))
    for _ in range(2):
        callback.on_train_begin(None, state, None)
        callback.on_step_end(None, state, None)
        callback.on_step_end(None, state, None)
    assert done == [5, 5]


def test_a_win_counts_one_a_tie_half_and_a_missing_score_nothing():
    gold, tin, lost = (scorer_by(gold_is_best).score(["Is it?"], target) for target in ("gold", "tin", "x"))
    assert win_rate([gold, gold, lost, tin], [tin, gold, tin, lost]) == 0.75
    assert win_rate([lost], [gold]) is None


@pytest.mark.slow
def test_two_ranks_answer_their_share_and_one_of_them_judges_and_logs(tmp_path):
    """With TensorBoard as the tracker."""
    first, second = on_two_ranks("rewards/eval_ranks.py", tmp_path)
    assert (first["share"], second["share"]) == ([2, 2], [1, 1]), "three prompts, before step 1 and after step 2"
    held_out = evaluations(first["history"])
    assert [entry["step"] for entry in held_out] == [0, 2] and evaluations(second["history"]) == []
    table = read_jsonl(tmp_path / "held_out" / "step_00002.jsonl")
    assert [row["reference"] for row in table] == ["gold", "tin", "x"], "in the order of the dataset"
    assert [json.loads(line["prompt"]) for line in table] == [row["prompt"] for row in HELD_OUT]

    events = event_accumulator.EventAccumulator(str(tmp_path / "events"), {"tensors": 0, "scalars": 0})
    events.Reload()
    seen = [(event.step, event.value) for event in events.Scalars("train/held_out/score")]
    assert seen == [(entry["step"], pytest.approx(entry["held_out/score"])) for entry in held_out]
    texts = events.Tensors("held_out/table/text_summary")
    assert [event.step for event in texts] == [0, 2]
    assert texts[-1].tensor_proto.string_val[0].decode() == as_markdown(table)


def test_tables_for_trackers():
    """wandb and trackio, as far as a table goes: neither is installed with this package."""
    rows, logged = [{"step": 1, "completion": "a|b\nc", "score": 0.5, "detail": "{}"}], {}
    tracker = SimpleNamespace(Table=lambda dataframe: dataframe.to_dict("records"), log=logged.update)
    show_table(tracker, "held_out/table", rows)
    assert logged == {"held_out/table": rows}
    assert as_markdown(rows) == "| step | completion | score |\n| --- | --- | --- |\n| 1 | a\\|b c | 0.5000 |"
