"""The one-token judge over an engine that answers at once: mass floor, dedupe, store, failures."""

import math
import pickle

import pytest

from checklist_rewards import ChecklistItem, Option
from checklist_rewards.errors import ChecklistError, ModelError
from checklist_rewards.judges import LogprobJudge, Read
from checklist_rewards.store import Store
from tests.fakes import FakeBackend

SHORT, POLITE = ChecklistItem(question="Is it short?"), ChecklistItem(question="Is it polite?")


def test_p_yes_is_the_labels_share_and_mass_their_sum():
    [verdict] = LogprobJudge(backend=FakeBackend(lambda prefix, tail: 0.75, mass=0.8)).judge([Read(SHORT, "Hi.")])
    assert verdict.probabilities == {"yes": pytest.approx(0.75), "no": pytest.approx(0.25)}
    assert verdict.mass == pytest.approx(0.8)
    assert verdict.unanswered is None


def test_under_the_mass_floor_a_read_is_unanswered_not_half():
    [verdict] = LogprobJudge(backend=FakeBackend(mass=0.3)).judge([Read(SHORT, "Hi.")])
    assert (verdict.unanswered, verdict.mass) == ("off_label", pytest.approx(0.3))
    assert verdict.probabilities is not None  # what was read is kept
    [verdict] = LogprobJudge(backend=FakeBackend(mass=0.3), mass_floor=0.2).judge([Read(SHORT, "Hi.")])
    assert verdict.unanswered is None


def test_certain_answers_do_not_overflow():
    [verdict] = LogprobJudge(backend=FakeBackend(lambda prefix, tail: 1.0)).judge([Read(SHORT, "Hi.")])
    assert verdict.probabilities == {"yes": 1.0, "no": 0.0}
    assert all(math.isfinite(p) for p in verdict.probabilities.values())


def test_equal_reads_are_asked_once_and_answered_each():
    backend = FakeBackend()
    judge = LogprobJudge(backend=backend)
    verdicts = judge.judge([Read(SHORT, "Hi."), Read(SHORT, "Hi."), Read(POLITE, "Hi."), Read(SHORT, "Ho.")])
    assert len(verdicts) == 4 and len(backend.asked) == 3
    assert (judge.receipt.reads, judge.receipt.deduplicated, judge.receipt.asked) == (4, 1, 3)


def test_reads_of_a_target_share_one_prefix():
    backend = FakeBackend()
    LogprobJudge(backend=backend).judge([Read(item, text) for item in (SHORT, POLITE) for text in ("Hi.", "Ho.")])
    [groups] = backend.calls
    assert [len(group.tails) for group in groups] == [2, 2]


def test_a_rerun_asks_nothing_and_a_changed_word_asks_for_that_item_alone(tmp_path):
    first, second = FakeBackend(lambda p, t: 0.9), FakeBackend(lambda p, t: 0.1)
    before = LogprobJudge(backend=first, store=Store(tmp_path / "s")).judge([Read(SHORT, "Hi."), Read(POLITE, "Hi.")])
    judge = LogprobJudge(backend=second, store=Store(tmp_path / "s"))
    kind = ChecklistItem(question="Is it kind?")
    after = judge.judge([Read(SHORT, "Hi."), Read(POLITE, "Hi."), Read(kind, "Hi.")])
    assert after[:2] == before
    assert [tail.splitlines()[0] for _, tail in second.asked] == ["Is it kind?"]
    assert (judge.receipt.stored, judge.receipt.asked) == (2, 1)


def test_another_model_or_another_prompt_is_another_read(tmp_path):
    store = Store(tmp_path / "s")
    LogprobJudge(backend=FakeBackend(identity="one"), store=store).judge([Read(SHORT, "Hi.")])
    other_model = FakeBackend(identity="two")
    LogprobJudge(backend=other_model, store=store).judge([Read(SHORT, "Hi.")])
    other_prompt = FakeBackend(identity="one")
    custom = tmp_path / "judge.md"
    custom.write_text("{target}\n{question}\nYes or no?")
    LogprobJudge(backend=other_prompt, store=store, prompt=custom).judge([Read(SHORT, "Hi.")])
    assert len(other_model.asked) == len(other_prompt.asked) == 1


def test_a_broken_chunk_costs_its_own_reads_and_is_asked_again(tmp_path):
    store = Store(tmp_path / "s")
    reads = [Read(item, text) for text in ("good", "bad", "fine") for item in (SHORT, POLITE)]
    flaky = FakeBackend(lambda p, t: 0.9, fails=lambda prefix, tail: "bad" in prefix, chunk_reads=2)
    verdicts = LogprobJudge(backend=flaky, store=store).judge(reads)
    assert [v.unanswered for v in verdicts] == [None, None, *["backend_error: the engine broke"] * 2, None, None]
    mended = FakeBackend(lambda p, t: 0.9)
    verdicts = LogprobJudge(backend=mended, store=store).judge(reads)
    assert [v.unanswered for v in verdicts] == [None] * 6
    assert len(mended.asked) == 2


def test_a_read_that_is_too_long_says_so_and_spoils_no_neighbour(tmp_path):
    backend = FakeBackend(lambda prefix, tail: None if "polite" in tail else 0.9)
    store = Store(tmp_path / "s")
    for _ in range(2):  # from the engine, then from the store
        verdicts = LogprobJudge(backend=backend, store=store).judge([Read(SHORT, "Hi."), Read(POLITE, "Hi.")])
        assert [v.unanswered for v in verdicts] == [None, "too_long"]
    assert len(backend.asked) == 2


def test_progress_adds_up_to_the_reads(tmp_path):
    seen: list[int] = []
    reads = [Read(item, text) for text in ("a", "b", "a") for item in (SHORT, POLITE)]
    LogprobJudge(backend=FakeBackend(chunk_reads=2)).judge(reads, seen.append)
    assert sum(seen) == len(reads) and len(seen) == 3


def test_an_item_with_options_is_refused_by_name():
    item = ChecklistItem(question="How?", options=(Option(label="a", value=0), Option(label="b", value=1)))
    with pytest.raises(ChecklistError, match=rf"row 2, item {item.id} .*has options"):
        LogprobJudge(backend=FakeBackend()).check_item(item, "row 2")


def test_a_model_that_is_not_there_is_refused_before_anything_is_asked():
    for name in ("./no/such/model", "/no/such/model", "a/b/c", "nonsense"):
        with pytest.raises(ModelError, match="there is no model"):
            LogprobJudge(name).check()


def test_a_judge_pickles_as_configuration(tmp_path):
    judge = pickle.loads(pickle.dumps(LogprobJudge("pocket", backend="transformers", store=Store(tmp_path / "s"))))
    assert judge.prompt.name.endswith("item.md") and judge.store.path == tmp_path / "s"
