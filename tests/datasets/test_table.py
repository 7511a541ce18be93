"""A scored batch as a table and as files: what goes in comes back, and the totals are those of the scores."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checklist_rewards import Checklist, Option
from checklist_rewards.datasets.table import BatchScore, score_from
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.scores import Verdict, rescore, score_checklist

CATEGORIES = [{"question": "Is it short?", "category": "form"}]
CATEGORIES += [{"question": "Is it red?", "category": "form", "weight": 2}]
CATEGORIES += [{"question": "Is it rude?", "category": "tone", "weight": -1}]
CHECKLIST = Checklist.parse([*CATEGORIES, "Is it new?"])
SCALE = (Option(label="cold", value=0.0), Option(label="warm", value=0.75), Option(label="n a", na=True))
WARM = Checklist.parse(["Is it?", {"question": "How warm?", "options": SCALE}])


def p(yes: float) -> Verdict:
    return Verdict({"yes": yes, "no": 1 - yes}, mass=1.0, judge="m", method="logprobs")


LOST = Verdict(unanswered="backend_error: gone")
ONE = score_checklist(CHECKLIST, [p(0.9), p(0.2), p(0.1), p(0.8)])
TWO = score_checklist(CHECKLIST, [p(0.9), LOST, p(0.9), Verdict(answer="no", reasoning="Because.", quality=4)])
NONE = score_checklist(CHECKLIST, [LOST] * 4)
FEW = score_checklist(CHECKLIST, [p(0.9), LOST, LOST, LOST])  # too few answers for a score


def test_totals_are_those_of_the_scores():
    batch = BatchScore([ONE, TWO, None, NONE])
    assert len(batch) == 4 and batch.rows == ({},) * 4
    assert batch.macro == pytest.approx((3 / 4 + 1 / 3) / 2)
    assert batch.micro == pytest.approx(4 / 7)
    assert batch.mean == pytest.approx(ONE.primary_score / 2 + TWO.primary_score / 2)
    assert list(batch.by_category) == ["form", "tone"]
    form, tone = batch.by_category["form"], batch.by_category["tone"]
    assert (form.macro, form.micro, form.counted) == (pytest.approx((1 / 2 + 1) / 2), pytest.approx(2 / 3), 3)
    assert (tone.macro, tone.micro) == (0.5, 0.5)
    assert ONE.category_pass_rates == {"form": 0.5, "tone": 1.0}
    assert NONE.category_pass_rates == {"form": None, "tone": None}
    nothing = BatchScore([])
    assert nothing.macro is nothing.micro is nothing.mean is None and nothing.by_category == {}


def test_the_table_has_the_rows_the_scores_and_their_numbers():
    scores, rows = [ONE, TWO, None, FEW], [{"n": 1, "text": "a"}, {"n": 2, "text": None}, {"n": 3}, {"n": 4}]
    frame = BatchScore(scores, rows).to_dataframe()
    assert list(frame.columns[:3]) == ["n", "text", "checklist_score"]
    assert frame["n"].tolist() == [1, 2, 3, 4] and frame["text"].tolist()[:2] == ["a", None]
    assert frame["text"].iloc[2] is pd.NA
    assert frame["checklist_score.pass_rate"].tolist()[:2] == [0.75, pytest.approx(1 / 3)]
    assert frame["checklist_score.quality"].tolist()[1] == 4.0
    assert frame["checklist_score.category/form"].mean() == pytest.approx(0.75)
    for name in ("primary_score", "pass_rate"):
        assert frame[f"checklist_score.{name}"].isna().tolist() == [False, False, True, True]
    assert frame["checklist_score.answered"].tolist()[3] == 1


def test_in_parquet_a_batch_is_the_file_of_score(tmp_path):
    rows = [{"id": 1, "text": "a", "mixed": 1}, {"id": 2, "tags": ["x"], "mixed": "1"}]
    BatchScore([ONE, None], rows).to_parquet(tmp_path / "b.pq")  # any file name
    read = BatchScore.from_parquet(tmp_path / "b.pq")
    assert read.scores == (ONE, None) and [row["mixed"] for row in read.rows] == [1, "1"]
    assert rescore(CHECKLIST, read.scores[0]) == ONE  # without an engine
    assert [(row["id"], row["text"], row["tags"]) for row in read.rows] == [(1, "a", None), (2, None, ["x"])]
    with write_rows(tmp_path / "c.parquet") as out:
        for row, score in zip(rows, (ONE.model_dump(), None), strict=True):
            out.write(row | {"checklist_score": score})
    assert BatchScore.from_parquet(tmp_path / "c.parquet") == read


def test_a_score_in_a_cell_of_any_file_is_the_score(tmp_path):
    """Arrow gives the mappings of all rows the same keys, in votes too; CSV has text."""
    votes = [
        Verdict({"yes": 0.9, "no": 0.1}, judge="one", uncalibrated={"yes": 0.8, "no": 0.2}),
        Verdict({"cold": 0.3, "warm": 0.6, "n a": 0.1}, judge="one"),
    ]
    score = score_checklist(WARM, [replace(vote, votes=(vote,)) for vote in votes])
    for name in ("rows.jsonl", "rows.csv", "rows.parquet"):
        with write_rows(tmp_path / name) as out:
            out.write({"checklist_score": score.model_dump()})
            out.write({"checklist_score": None})
        cells = [row.data["checklist_score"] for row in read_rows(tmp_path / name)]
        assert [score_from(cell, "row") for cell in cells] == [score, None], name
    with pytest.raises(SampleError, match="row 1: checklist_score is not valid JSON"):
        score_from("good", "row 1")
    with pytest.raises(SampleError, match=r"row 1: checklist_score is not a score: primary_score is missing"):
        score_from('{"items": 3}', "row 1")
    dumped = json.loads(score_checklist(Checklist.parse(["Is it?"]), [p(0.75)]).model_dump_json())
    item = dumped["items"][0]
    assert score_from({**dumped, "items": [{**item, "uncalibrated": {}}]}, "row 1").items[0].uncalibrated is None
    for name, message in (("weight", r"items.0.weight is missing"), ("soft", r"items.0: .* got 1.0 and None")):
        with pytest.raises(SampleError, match=message):
            score_from({**dumped, "items": [{key: value for key, value in item.items() if key != name}]}, "row 1")
    with pytest.raises(SampleError, match="aggregation is missing"):
        score_from({key: value for key, value in dumped.items() if key != "aggregation"}, "row 1")
    with pytest.raises(SampleError, match="row 1: checklist_score is not valid JSON"):
        score_from("[" * 20_000, "row 1")


def test_scores_that_datasets_saved_are_read(tmp_path):
    """The labels of items differ, so `datasets` keeps their probabilities as JSON."""
    from datasets import load_dataset

    score = score_checklist(WARM, [p(0.75), Verdict({"cold": 0.25, "warm": 0.5, "n a": 0.25})])
    other = score_checklist(Checklist.parse(["Is it?"]), [LOST])
    BatchScore([score, other], [{"n": 1}, {"n": 2}]).to_jsonl(tmp_path / "b.jsonl")
    loaded = load_dataset("json", data_files=str(tmp_path / "b.jsonl"), split="train", cache_dir=str(tmp_path))
    loaded.to_parquet(tmp_path / "b.parquet")
    assert BatchScore.from_parquet(tmp_path / "b.parquet").scores == (score, other)
    assert [text.score for text in ScoredFile(tmp_path / "b.parquet")] == [score, other]


def test_half_a_surrogate_pair_survives(tmp_path):
    lost = score_checklist(Checklist.parse(["a?"]), [Verdict(answer="no", reasoning="cut \ud83d")])
    batch = BatchScore([lost], [{"text": "half \ud83d"}])
    batch.to_jsonl(tmp_path / "b.jsonl")
    batch.to_jsonl(tmp_path / "b.txt")  # any file name
    assert (tmp_path / "b.txt").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    batch.to_parquet(tmp_path / "b.parquet")
    assert BatchScore.from_jsonl(tmp_path / "b.jsonl") == BatchScore.from_parquet(tmp_path / "b.parquet") == batch


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


names = st.sampled_from(["prompt", "target", "n", "meta", "ü", ""])


@st.composite
def scores(draw):
    items, verdicts = [], []
    for number in range(draw(st.integers(1, 3))):
        item = {"question": f"{draw(st.text(min_size=1, max_size=5))} {number}?", "weight": draw(st.floats(0.5, 3))}
        item |= {"category": draw(st.sampled_from([None, "form", "tone"])), "required": draw(st.booleans())}
        kind = draw(st.sampled_from(["lost", "read", "word", "options"]))
        if kind == "options":
            item["options"] = SCALE
            verdicts.append(Verdict({"cold": 0.25, "warm": 0.5, "n a": 0.25}, mass=draw(st.floats(0, 1))))
        elif kind == "read":
            yes = draw(st.floats(0, 1))
            verdicts.append(Verdict({"yes": yes, "no": 1 - yes}, mass=1.0, judge="m", method="logprobs"))
        elif kind == "word":
            grade = draw(st.none() | st.integers(1, 5))
            verdicts.append(Verdict(answer="no", reasoning=draw(st.none() | st.text()), method="reply", quality=grade))
        else:
            verdicts.append(LOST)
        items.append(item)
    return score_checklist(Checklist.parse(items), verdicts)


@st.composite
def batches(draw):
    found = draw(st.lists(st.none() | scores(), max_size=4))
    return BatchScore(found, [draw(st.dictionaries(names, values, max_size=4)) for _ in found])


def exact(batch: BatchScore):
    """With the type of every value: 1, 1.0 and True are equal, and are three things."""
    return json.dumps(batch.rows, sort_keys=True), [s and s.model_dump_json() for s in batch.scores]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(batches())
def test_what_goes_in_comes_back(tmp_path_factory, batch):
    folder = tmp_path_factory.mktemp("batch")
    batch.to_jsonl(folder / "b.jsonl")
    batch.to_parquet(folder / "b.parquet")
    again = BatchScore.from_jsonl(folder / "b.jsonl")
    assert exact(again) == exact(batch) and again == batch
    assert BatchScore.from_parquet(folder / "b.parquet").scores == batch.scores


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: BatchScore([ONE], []), "got 0 rows for 1 scores"),
        (lambda folder: BatchScore([ONE], [{"checklist_score": 1}]), "row 1 already has a column 'checklist_score'"),
        (lambda folder: BatchScore.from_jsonl(folder / "plain.jsonl"), "plain.jsonl, line 1: column not found"),
        (
            lambda folder: BatchScore([ONE], [{"\ud800": 1}]).to_parquet(folder / "b"),
            "a Parquet column cannot be named",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(tmp_path, make, words):
    (tmp_path / "plain.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(SampleError, match=words):
        make(tmp_path)
