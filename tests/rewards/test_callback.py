"""Held-out prompts during training: the pocket policy in TRL's trainers, a fake engine as judge."""

import json
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from tensorboard.backend.event_processing import event_accumulator

from checklist_rewards import ChecklistScorer, Sample, Score
from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.rewards.callback import ChecklistEvalCallback, as_markdown, show_table, win_rate
from checklist_rewards.rewards.trl import ChecklistReward
from tests.fakes import FakeBackend
from tests.families import FAMILIES, model, tokenizer
from tests.ranks import on_two_ranks
from tests.rewards.test_trl_trainers import ON_CPU, SMALL, by_hash, rows

HELD_OUT = [
    {**row, "answer": answer} for row, answer in zip(rows(conversational=True, n=3), ["gold", "tin", "x"], strict=True)
]


def gold_is_best(prefix: str, tail: str) -> float | None:
    """The reference "gold" is perfect, "tin" is bad, and "x" cannot be read; answers are in between."""
    if "\nx\n" in prefix:
        return None
    return 1.0 if "\ngold\n" in prefix else 0.0 if "\ntin\n" in prefix else 0.4 + 0.3 * by_hash(prefix, tail)


def trainer_in(folder, rule=gold_is_best, **options):
    import trl

    scorer = ChecklistScorer(backend=FakeBackend(rule), store=False)
    settings = {**ON_CPU, **SMALL, "per_device_train_batch_size": 4, "max_completion_length": 8, **options}
    args = trl.GRPOConfig(output_dir=str(folder), **settings)
    data = Dataset.from_list(rows(conversational=True))
    trainer = trl.GRPOTrainer(
        model=str(pocket_dir()), reward_funcs=ChecklistReward(scorer), args=args, train_dataset=data
    )
    return trainer, scorer


@pytest.mark.slow
def test_a_training_run_logs_held_out_scores_beside_its_own(tmp_path):
    trainer, scorer = trainer_in(tmp_path, max_steps=2)
    callback = ChecklistEvalCallback(trainer, scorer, HELD_OUT, every=1, reference_column="answer", name="held_out")
    callback.generation.max_new_tokens = 8
    trainer.add_callback(callback)
    trainer.train()
    history = trainer.state.log_history
    evaluations = [entry for entry in history if "held_out/score" in entry]
    assert [entry["step"] for entry in evaluations] == [0, 1, 2]
    assert [entry["step"] for entry in history if "rewards/checklist_reward/mean" in entry] == [1, 2]
    for entry in evaluations:
        assert entry["held_out/win_rate"] == 0.5, "lost against gold, won against tin, the third has no score"
        assert entry["held_out/unscored"] == 0 and 0.4 <= entry["held_out/score"] <= 0.7
        assert not any(key.startswith("rewards/") for key in entry)
    categories = {item["category"] for row in HELD_OUT for item in row["checklist"]}
    assert {key for key in evaluations[0] if "category" in key} == {f"held_out/category/{c}" for c in categories}
    table = [json.loads(line) for line in (tmp_path / "held_out" / "step_00002.jsonl").read_text().splitlines()]
    assert [row["reference"] for row in table] == ["gold", "tin", "x"]
    assert [row["reference_score"] for row in table] == [1.0, 0.0, None]
    scores = [row["score"] for row in table]
    assert evaluations[-1]["held_out/score"] == pytest.approx(sum(scores) / 3)
    assert [Score.model_validate_json(row["detail"]).primary_score for row in table] == scores
    assert trainer.model.training


@pytest.mark.slow
def test_with_the_defaults_of_trl(scorer, tmp_path, caplog):
    """bf16, gradient checkpointing, and a policy that is saved and goes on training after it has answered."""
    import trl

    trainer = trl.GRPOTrainer(
        model=str(pocket_dir()),
        reward_funcs=ChecklistReward(ChecklistScorer(backend=FakeBackend(by_hash), store=False)),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            use_cpu=True,  # without a GPU, TRL refuses its own default, bf16
            max_steps=1,  # the default is three epochs
        ),
        train_dataset=Dataset.from_list(rows(conversational=True)),
    )
    assert trainer.args.bf16 and trainer.args.gradient_checkpointing
    trainer.add_callback(ChecklistEvalCallback(trainer, scorer, HELD_OUT, every=1))
    trainer.train()
    evaluations = [entry for entry in trainer.state.log_history if "checklist_eval/score" in entry]
    assert [entry["step"] for entry in evaluations] == [0, 1]
    for entry in evaluations:
        table = [json.loads(line) for line in (tmp_path / "checklist_eval" / f"step_{entry['step']:05d}.jsonl").open()]
        again = scorer.score_batch(
            [
                Sample(row["checklist"], line["completion"], row["prompt"][-1]["content"])
                for row, line in zip(HELD_OUT, table, strict=True)
            ]
        )
        mean = sum(score.primary_score for score in again) / len(again)
        assert entry["checklist_eval/score"] == pytest.approx(mean, abs=1e-6)
    assert (tmp_path / "checkpoint-1" / "trainer_state.json").is_file()
    assert not [record for record in caplog.records if record.name.startswith("checklist_rewards")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gptoss", "magistral", "qwen3_5_think"])
def test_answers_are_judged_without_their_thoughts(name, tmp_path):
    import trl

    family = FAMILIES[name]
    tokens = tokenizer(family)
    args = trl.GRPOConfig(output_dir=str(tmp_path), **{**ON_CPU, **SMALL}, chat_template_kwargs=dict(family.kwargs))
    judge = FakeBackend(lambda prefix, tail: 0.9 if "Plan" not in prefix and "It is 42." in prefix else 0.2)
    scorer = ChecklistScorer(backend=judge, store=False)
    trainer = trl.GRPOTrainer(
        model=model(family, tokens), processing_class=tokens, reward_funcs=ChecklistReward(scorer), args=args,
        train_dataset=Dataset.from_list(rows(conversational=True)),
    )  # fmt: skip
    callback = ChecklistEvalCallback(trainer, scorer, HELD_OUT, every=1, batch_size=3)
    written = [family.thought("Plan.", "It is 42."), family.cut_thought("Plan: so many"), family.plain("No.")]
    ids = [tokens(text, add_special_tokens=False)["input_ids"] for text in written]
    callback.generation.max_new_tokens = length = max(map(len, ids))
    padded = [row + [tokens.pad_token_id] * (length - len(row)) for row in ids]

    def generate(input_ids, **settings):
        return torch.cat([input_ids, torch.tensor(padded)], dim=1)

    trainer.model.generate = generate
    assert [(a.text.strip(), a.state) for a in callback._answers()] == [
        ("It is 42.", "answered"),
        ("", "cut_in_thought"),
        ("No.", "answered"),
    ]
    numbers = callback.evaluate()
    assert numbers["checklist_eval/cut_in_thought"] == pytest.approx(1 / 3)
    assert not any("Plan" in prefix for prefix, _ in judge.asked)


@pytest.mark.slow
def test_greedy_answers_do_not_depend_on_the_batch_and_a_judge_that_fails_gives_no_means(tmp_path):
    trainer, _ = trainer_in(tmp_path)
    dead = ChecklistScorer(backend=FakeBackend(fails=lambda prefix, tail: True), store=False)
    callbacks = [ChecklistEvalCallback(trainer, dead, HELD_OUT, every=1, batch_size=size) for size in (1, 3)]
    one, three = (callback._answers() for callback in callbacks)
    assert one == three and all(answer.text for answer in one)
    shares = {f"checklist_eval/{state}": 0.0 for state in ("empty", "cut_in_thought", "cut")}
    assert callbacks[0].evaluate() == {"checklist_eval/unscored": 1.0, **shares}


@pytest.mark.slow
def test_references_that_were_lost_are_read_again_at_the_next_evaluation(tmp_path):
    down = {"gold", "tin"}
    backend = FakeBackend(
        lambda prefix, tail: 0.9,
        fails=lambda prefix, tail: any(f"\n{word}\n" in prefix for word in down),
        chunk_reads=1,
    )
    trainer, _ = trainer_in(tmp_path)
    callback = ChecklistEvalCallback(
        trainer, ChecklistScorer(backend=backend, store=False), HELD_OUT, every=1, reference_column="answer"
    )
    callback.generation.max_new_tokens = 8
    read: list[list[str]] = []
    for still_down in ({"gold", "tin"}, {"gold"}, set(), set()):
        down.clear()
        down.update(still_down)
        asked = len(backend.asked)
        numbers = callback.evaluate()
        read.append(
            [w for w in ("gold", "tin", "x") if any(f"\n{w}\n" in prefix for prefix, _ in backend.asked[asked:])]
        )
    assert read == [["x"], ["tin"], ["gold"], []], "each is read until it has an answer, and then not again"
    table = [json.loads(line) for line in (tmp_path / "checklist_eval" / "step_00000.jsonl").read_text().splitlines()]
    assert [row["reference_score"] for row in table] == [0.9, 0.9, 0.9] and numbers["checklist_eval/win_rate"] == 0.5


@pytest.mark.slow
def test_an_answer_to_a_prompt_that_opens_the_thinking_block_is_thinking_until_it_closes_it(tmp_path):
    trainer, scorer = trainer_in(tmp_path)
    tokenizer = trainer.processing_class

    def answers(prompt="Say hello.", **options):
        callback = ChecklistEvalCallback(
            trainer, scorer, [{"prompt": prompt, "checklist": ["Is it?"]}], every=1, **options
        )
        callback.generation.max_new_tokens = 8
        return [answer.text for answer in callback._answers()]

    chat = [{"role": "user", "content": "Say hello."}]
    [plain], [whole] = answers(), answers(chat)
    assert plain and whole
    assert answers(thinking_opened=True) == answers("Say hello.<think>\n") == [""]
    tokenizer.chat_template += "{% if opens %}<think>\n{% endif %}"
    assert answers(chat) == [whole]
    trainer.chat_template_kwargs = {"opens": True}  # as the trainer renders its own prompts
    assert answers(chat) == [""] and answers(chat, keep_thinking=True) != [""]


@pytest.mark.parametrize(
    ("data", "options", "error", "words"),
    [
        (HELD_OUT, {"every": 0}, SampleError, "every=0"),
        ([], {}, SampleError, "no rows"),
        ([{"prompt": "A"}], {}, SampleError, "row 1: column 'checklist' is missing or None; the row has prompt"),
        ([{"prompt": "A", "checklist": []}], {}, ChecklistError, "checklist_eval, row 1.*empty"),
        (HELD_OUT, {"reference_column": "best"}, SampleError, "row 1: column 'best' is missing or None"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_when_it_is_made(data, options, error, words):
    with pytest.raises(error, match=words):
        ChecklistEvalCallback(None, ChecklistScorer(store=False), data, **{"every": 1, **options})


def test_a_second_training_is_evaluated_at_the_step_at_which_the_first_was_last(monkeypatch):
    state = SimpleNamespace(global_step=5)
    trainer = SimpleNamespace(state=state, accelerator=SimpleNamespace(is_main_process=True))
    scorer = ChecklistScorer(backend=FakeBackend(), store=False)
    callback, done = ChecklistEvalCallback(trainer, scorer, HELD_OUT, every=5, at_start=False), []
    monkeypatch.setattr(callback, "_answers", list)
    monkeypatch.setattr(callback, "_judged", lambda answers: done.append(state.global_step))
    for _ in range(2):
        callback.on_train_begin(None, SimpleNamespace(global_step=0), None)
        callback.on_step_end(None, state, None)
        callback.on_step_end(None, state, None)
    assert done == [5, 5]


def test_a_win_counts_one_a_tie_half_and_a_missing_score_nothing():
    scorer = ChecklistScorer(backend=FakeBackend(gold_is_best), store=False)
    gold, tin, lost = (scorer.score(["Is it?"], target) for target in ("gold", "tin", "x"))
    assert win_rate([gold, gold, lost, tin], [tin, gold, tin, lost]) == 0.75
    assert win_rate([lost], [gold]) is None


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """The folder of a training run on two ranks, with TensorBoard as its tracker."""
    folder = tmp_path_factory.mktemp("ranks")
    on_two_ranks("rewards/eval_ranks.py", folder)
    return folder


@pytest.mark.slow
def test_two_ranks_answer_their_share_and_one_of_them_judges_and_logs(two_ranks):
    first, second = (json.loads((two_ranks / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["step"] == second["step"] == 2
    assert (first["share"], second["share"]) == ([2, 2], [1, 1]), "three prompts, before step 1 and after step 2"
    held_out = [entry for entry in first["history"] if "held_out/score" in entry]
    assert [entry["step"] for entry in held_out] == [0, 2]
    assert all(entry["held_out/win_rate"] == 0.5 for entry in held_out)
    assert not any("held_out/score" in entry for entry in second["history"])
    tables = sorted((two_ranks / "held_out").glob("*.jsonl"))
    assert [path.name for path in tables] == ["step_00000.jsonl", "step_00002.jsonl"]
    rows = [json.loads(line) for line in tables[-1].read_text().splitlines()]
    assert [row["reference"] for row in rows] == ["gold", "tin", "x"], "in the order of the dataset"
    assert [json.loads(row["prompt"]) for row in rows] == [row["prompt"] for row in HELD_OUT]


@pytest.mark.slow
def test_tensorboard_gets_the_numbers_and_the_table(two_ranks):
    events = event_accumulator.EventAccumulator(str(two_ranks / "events"), {"tensors": 0, "scalars": 0})
    events.Reload()
    history = json.loads((two_ranks / "0.json").read_text())["history"]
    held_out = [entry for entry in history if "held_out/score" in entry]
    for name in ("score", "pass_rate", "unscored", "win_rate"):
        seen = [(event.step, event.value) for event in events.Scalars(f"train/held_out/{name}")]
        assert seen == [(entry["step"], pytest.approx(entry[f"held_out/{name}"])) for entry in held_out]
    texts = events.Tensors("held_out/table/text_summary")
    assert [event.step for event in texts] == [0, 2]
    shown = texts[-1].tensor_proto.string_val[0].decode()
    rows = [json.loads(line) for line in (two_ranks / "held_out" / "step_00002.jsonl").read_text().splitlines()]
    assert shown == as_markdown(rows) and "| gold |" in shown


@pytest.mark.slow
def test_a_tracker_that_takes_no_table_costs_the_table_only(tmp_path, caplog):
    trainer, scorer = trainer_in(tmp_path)
    trainer.args.report_to = ["trackio"]  # not installed, or without a run
    callback = ChecklistEvalCallback(trainer, scorer, HELD_OUT, every=1)
    callback.generation.max_new_tokens = 8
    assert "checklist_eval/score" in callback.evaluate()
    assert "trackio failed to log the table" in caplog.text
    assert (tmp_path / "checklist_eval" / "step_00000.jsonl").is_file()


@pytest.mark.slow
def test_a_prompt_without_json_is_described_in_the_table(tmp_path):
    trainer, scorer = trainer_in(tmp_path)
    prompt = [{"role": "user", "content": "Say hello.", "seen": b"GIF89a"}]
    callback = ChecklistEvalCallback(trainer, scorer, [{"prompt": prompt, "checklist": ["Is it?"]}], every=1)
    callback.generation.max_new_tokens = 8
    callback.evaluate()
    [line] = (tmp_path / callback.name / "step_00000.jsonl").read_text().splitlines()
    assert json.loads(json.loads(line)["prompt"])[0]["seen"] == "<bytes 6, sha256 610f5ae4d76e3326>"


@pytest.mark.slow
def test_a_table_that_cannot_be_written_does_not_stop_training(tmp_path, caplog):
    trainer, scorer = trainer_in(tmp_path)
    callback = ChecklistEvalCallback(trainer, scorer, HELD_OUT, every=1)
    callback.generation.max_new_tokens = 8
    (tmp_path / callback.name).write_text("a file where the folder should be")
    assert "checklist_eval/score" in callback.evaluate()
    assert "cannot write the table of step 0" in caplog.text


class Tracker:
    """wandb and trackio, as far as a table goes: neither is installed with this package."""

    def __init__(self):
        self.logged = {}

    def Table(self, dataframe):
        return dataframe.to_dict("records")

    def log(self, values):
        self.logged |= values


def test_tables_for_trackers():
    rows = [{"step": 1, "completion": "a|b\nc", "score": 0.5, "detail": "{}"}]
    tracker = Tracker()
    show_table(tracker, "held_out/table", rows)
    assert tracker.logged == {"held_out/table": rows}
    assert as_markdown(rows) == "| step | completion | score |\n| --- | --- | --- |\n| 1 | a\\|b c | 0.5000 |"
