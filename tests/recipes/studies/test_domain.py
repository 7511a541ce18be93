"""Prompts for a new domain: how an answer is put to the judge, and which changes are kept."""

import json

import pytest
from english.tasks import Example
from studies.judges import domain, grading
from studies.judges.grading import SAME, SUBJECT, Setup, clauses, point_questions, shots
from studies.judges.protocol import Answers, read

from checklist_rewards import pipeline
from checklist_rewards.errors import ModelError
from checklist_rewards.evaluation.agreement import Bootstrap
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.judges import LogprobJudge
from checklist_rewards.pipelines import builtin, register_custom_pipeline
from tests.fakes import FakeBackend


def answer(target="The switch is open.", statement="the circuit has a gap", label=1.0, group="bulb", input="Why?"):
    return Example("semeval", group, target, statement, label, input)


def test_the_baseline_is_read_as_in_the_protocol():
    backend = FakeBackend()
    judge = LogprobJudge(backend=backend)
    judge.answer(Setup().reads(answer(), ["Is it short?"]))
    read(judge, [answer()], "judge")
    assert len(backend.asked) == 2 and backend.asked[0] == backend.asked[1]


def test_the_expected_answer_is_quoted_or_shown():
    [quoted] = Setup().reads(answer(), [])
    [shown] = Setup(reference=True).reads(answer(), [])
    assert "'the circuit has a gap'" in quoted.item.question and quoted.reference is None
    assert "gap" not in shown.item.question and shown.reference == "the circuit has a gap"
    several = Setup(reference=True, points=True, wordings=3).reads(answer(), ["Is the switch open?"])
    assert [one.item.question for one in several] == [*grading.SHOWN, "Is the switch open?"]


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("there is a gap", []),
        ("The Earth is turning. The Sun stays in one place.", ["The Earth is turning", "The Sun stays in one place"]),
        ("Yes. The foil completes the circuit.", ["Yes", "The foil completes the circuit"]),
        ("It is a metal, and all metals conduct.", ["It is a metal", "and all metals conduct"]),
        ("The seed swells and it breaks; nothing else.", []),
        (" ".join(f"This is point {n}." for n in range(6)), 4),
    ],
)
def test_an_expected_answer_is_split_at_its_clauses(text, points):
    found = clauses(text)
    assert len(found) == points if isinstance(points, int) else found == points


def test_a_writer_splits_what_it_can():
    both = [answer(statement="The Earth turns."), answer(statement="The sun stays. The shadow moves.")]
    wanted = [grading.POINT.replace("{}", point) for point in ("The sun stays", "The shadow moves")]

    def written(reply):
        engine = FakeBackend(replies=[reply])
        prompt = grading.PROMPTS / "points.md"
        writer = DirectGenerator(backend=engine, prompt=prompt, min_items=1, temperature=0, store=False)
        questions, failed = point_questions(both, writer)
        return list(questions.values()), failed

    one = "Does the answer say that the Earth is turning?"
    assert written(f"1. {one}") == ([[one], [one]], 0)
    assert written("I cannot do this.") == ([[], wanted], 2)
    assert point_questions(both) == ({("Why?", "The Earth turns."): [], grading.expected(both[1]): wanted}, 0)


def test_the_prompts_make_a_pipeline(monkeypatch):
    monkeypatch.setattr(builtin, "_registered", {})
    scorer = {"mode": "item", "metric": "normalized", "prompt": str(grading.PROMPTS / "grade.md")}
    points = grading.PROMPTS / "points.md"
    backend = FakeBackend(lambda prefix, tail: 0.9, replies=["1. Does the answer say that there is a gap?"])
    register_custom_pipeline("exam", points, generator={"min_items": 1}, scorer=scorer)
    result = pipeline("exam", model="judge", backend=backend, store=False)("Why?", "It is open.", reference="a gap")
    assert result.score.normalized_score == pytest.approx(0.9)
    [(prefix, tail)] = backend.asked
    assert prefix.startswith("## Exam question") and "there is a gap?" in tail


def test_examples_are_of_the_subject_or_of_the_same_exam_question():
    training = [
        answer(f"answer {n} of {group}", group=group, label=float(n % 2)) for group in "abcdef" for n in range(6)
    ]
    training += [answer("unclear", group="a", label=label) for label in (0.0, 1.0)]
    few = shots(training, SUBJECT)
    assert sorted(shot.label for shot in few.examples) == [False, False, True, True]
    assert len({shot.target[-1] for shot in few.examples}) == 4
    assert all("The teacher expects: the circuit has a gap" in shot.input for shot in few.examples)
    [of_c] = Setup(examples=SAME).reads(answer("answer 1 of c", group="c"), [])
    chosen = [shot for _, shot in shots(training, SAME).chosen(of_c.item, of_c.target)]
    assert len(chosen) == 4 and all(shot.item == "c" and shot.target != "answer 1 of c" for shot in chosen)
    assert not [shot for shot in shots(training, SAME).examples if shot.target == "unclear"]


def test_a_gain_is_paired():
    some = [answer(label=float(n % 2), group=str(n)) for n in range(20)]
    right = [0.9 if n % 2 else 0.1 for n in range(20)]
    same = domain._gain(Answers(some, right, 0.5), Answers(some, right, 0.5), Bootstrap(50))
    assert all(figure == {"value": 0, "low": 0, "high": 0} for figure in same.values())
    more = domain._gain(Answers(some, right, 0.5), Answers(some, [0.3] * 20, 0.5), Bootstrap(50))
    assert (more["auc"]["value"], more["accuracy"]["value"], more["kappa"]["value"]) == (0.5, 0.5, 1)


def fake(rule):
    return lambda model, adapter=None, store=None: LogprobJudge(backend=FakeBackend(rule))


def test_a_change_is_kept_if_it_helps_on_train(data_dir, tmp_path, monkeypatch):
    """This judge finds words of the expected answer if it is shown as the reference. Examples confuse it."""

    def rule(prefix, tail):
        _, _, shown = prefix.partition("## Reference answer")
        if not shown or "Example 1" in tail:
            return 0.5
        reference, _, said = shown.partition("## Response")
        asked = set(reference.lower().split()[1:-1])
        return 0.1 + 0.8 * len(asked & set(said.lower().split())) / len(asked)

    monkeypatch.setattr(domain, "judge_of", fake(rule))
    arguments = ["judge", "--output", str(tmp_path), "--reads", "40", "--train-reads", "40", "--data", str(data_dir)]
    found = domain.main([*arguments, "--resamples", "20"])
    kept = {name: line.get("kept") for name, line in found["lines"].items()}
    assert kept[domain.BASELINE] and kept["reference shown"]
    assert not kept["judge prompt of the domain"] and not kept["four examples of the subject"]
    assert found["lines"][domain.BASELINE]["figures"]["auc"]["value"] == 0.5
    assert found["all_kept"]["auc"]["value"] > 0.1
    assert found["lines"]["three wordings"]["reads_per_answer"] >= 3
    assert json.loads((tmp_path / "judge.json").read_text()) == found
    assert "| reference shown | yes |" in (tmp_path / "judge.md").read_text()


def test_examples_are_never_answers_that_are_read(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(domain, "judge_of", fake(lambda prefix, tail: 0.5))
    args = type("Args", (), dict(model="judge", adapter=None, output=tmp_path, data=data_dir, writer=None))
    args.reads, args.train_reads = 40, 60
    study = domain.Study(args)
    read = {domain.answer_key(one) for one in study.train}
    shown = {(shot.item, " ".join(shot.target.split()).casefold()) for shot in study.examples[SAME].examples}
    assert len(shown) > 3000 and not shown & read
    assert len(study.examples[SUBJECT].examples) == 4


def test_an_encoder_has_no_prompt(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
    with pytest.raises(ModelError, match="an encoder judge has no prompt"):
        domain.main([str(tmp_path), "--output", str(tmp_path / "out")])


@pytest.mark.slow
@pytest.mark.study
@pytest.mark.parametrize("model", ["pocket", "smollm2"])
def test_a_model_with_all_changes(data_dir, tmp_path, model):
    arguments = ["--reads", "1", "--train-reads", "4", "--data", str(data_dir), "--resamples", "10"]
    found = domain.main([model, "--output", str(tmp_path), *arguments])
    assert set(domain.CHANGES) < set(found["lines"])
    aucs = [line["train_auc"] for line in found["lines"].values()]
    assert len(set(aucs)) > 1
