"""Pipelines at work: what is asked, what is written, what is scored, and what one failure costs."""

import pytest

from checklist_rewards.backends import Reply, Sampling, engine
from checklist_rewards.datasets.tasks import Totals
from checklist_rewards.errors import ChecklistError, GenerationError, SampleError
from checklist_rewards.generators import Dimensions, Request
from checklist_rewards.pipelines import ConfigError, pipeline
from checklist_rewards.pipelines.assembly import a_few, samples_of
from checklist_rewards.pipelines.builtin import UNIVERSAL
from checklist_rewards.rows import Sample, fields_of
from tests.generators.fakes import Replies
from tests.pipelines.fakes import Scripted
from tests.test_images import PILLOWS

ROW = {"input": "Write a note.", "target": "A note.", "reference": "The best note."}
LIST = "1. Is it short?\n2. Is it old?"
FLUENCY = {"dimensions": [{"name": "fluency", "definition": "It reads well."}]}
ITEMS = {"mode": "item"}


def piped(name="tick", rule=lambda text: LIST, last=0.25, **settings):
    """A pipeline, and the engine that writes and judges for it."""
    fake = Scripted(rule, last)
    return pipeline(name, model="m", backend=fake, **{"store": False} | settings), fake


def written(*questions, **fields):
    return {"questions": [{"question": question, **fields} for question in questions]}


def test_a_preset_decides_what_is_asked_and_how_it_is_scored():
    pipe, fake = piped("rlcf_direct", lambda text: written("Is it short?", weight=40))
    result = pipe(**ROW, history="user: Hello there.")
    found = [(item.question, item.weight) for item in result.checklist.items]
    assert found == [("Is it short?", 40), (UNIVERSAL, 100)]
    assert "The best note." in fake.prompts[0] and fake.samplings[0].temperature == 0
    assert all("Hello there." in prefix for prefix, _, _ in fake.reads)
    assert [labels for _, _, labels in fake.reads] == [tuple("0123456789")] * 2
    assert result.score.primary_score == pytest.approx(0.25)  # the expected grade: 0.75 x 0 + 0.25 x 9, of 9


def test_a_scale_that_the_judge_cannot_answer_on_is_refused_before_checklists_are_written():
    pipe, fake = piped("rlcf_direct", lambda text: written("Is it short?", weight=40), scorer={"scale": 101})
    with pytest.raises(ChecklistError, match="scale=101, item .*: 101 options are too many for a one-token read"):
        pipe.run_batch([ROW])
    assert not fake.prompts


@pytest.mark.parametrize("refiners", [[], ["unit_tester"]])
def test_a_row_with_an_image_that_the_judge_cannot_take_is_named_before_its_checklist_is_written(refiners):
    writer = Scripted(lambda text: LIST)
    writer.sees = True
    pipe, judge = piped(generator_backend=writer, refiners=refiners)
    rows = [{**ROW, "candidates": ["A note."]}, {**ROW, "candidates": ["A red note."], "image": PILLOWS["red"]}]
    if refiners:  # which ask the judge about the candidates
        rows = [{**row, "target": None} for row in rows]
    with pytest.raises(SampleError, match="row 2: the input has an image, but the judge 'm' reads text only"):
        pipe.run_batch(rows)
    assert not writer.prompts
    judge.sees = True
    assert all(result.checklist is not None for result in pipe.run_batch(rows))


def test_candidates_reach_the_prompt_or_are_sampled(monkeypatch):
    pipe, fake = piped(
        "rlcf_candidates_only",
        lambda text: written("Is it short?", weight=1) if "first try" in text else "a first try",
    )
    pipe.run_batch([{**ROW, "candidates": ["first try", "second try"]}])
    assert "first try" in fake.prompts[0] and "second try" in fake.prompts[0]
    with pytest.raises(SampleError, match="row 1: the request has neither candidates nor"):
        pipe.run_batch([ROW])
    built = []
    monkeypatch.setattr(engine, "_engines", {})
    monkeypatch.setattr(engine, "_build", lambda name, model, url, settings: built.append((model, url)) or fake)
    settings = {"candidate_models": ["small", "smaller"]}
    pipe = pipeline("rlcf_candidates_only", model="m", base_url="http://here/v1", store=False, generator=settings)
    [result] = pipe.run_batch([ROW])
    assert result.checklist is not None and fake.prompts[-3:-1] == ["Write a note."] * 2
    assert sorted(built) == [(model, "http://here/v1") for model in ("m", "small", "smaller")]


def test_a_corpus_pipeline_writes_one_checklist_and_scores_every_row_with_it():
    settings = {"generator": {"options": {"augmentation": "none"}}, "scorer": ITEMS}
    pipe, fake = piped("checkeval", lambda text: written("Is it grammatical?", "Is it plain?"), **settings)
    rows = [{"input": "Sum up.", "target": text} for text in ("one", "two", "three")]
    results = pipe.run_batch(rows, source=FLUENCY)
    assert len({result.checklist.id for result in results}) == 1 and len(fake.prompts) == 1
    assert [result.score.answered for result in results] == [2, 2, 2]
    assert {item.category for item in results[0].checklist.items} == {"fluency"}
    again = pipe.run_batch(rows, checklist=results[0].checklist)
    assert [result.score for result in again] == [result.score for result in results] and len(fake.prompts) == 1
    assert pipe("Sum up.", "four", source=Dimensions.model_validate(FLUENCY)).score.total == 2


@pytest.mark.parametrize(
    ("name", "rows", "arguments", "words"),
    [
        ("checkeval", [ROW], {}, "requires source=... or checklist="),
        ("tick", [ROW], {"source": {}}, "requires a corpus-level pipeline"),
        ("checkeval", [ROW], {"source": {}, "checklist": ["a?"]}, "cannot be combined with checklist"),
        ("tick", [ROW, ROW | {"reference": 1}], {}, "row 2: 'reference' must be a string"),
        ("tick", [ROW, ROW | {"candidates": "b"}], {}, "row 2: 'candidates' must be a list or a JSON list"),
    ],
)
def test_sources_and_rows_that_do_not_fit_are_refused_before_anything_is_asked(name, rows, arguments, words):
    pipe, fake = piped(name)
    with pytest.raises((ConfigError, SampleError), match=words):
        pipe.run_batch(rows, **arguments)
    assert fake.prompts == []


def test_a_misspelt_argument_is_refused():
    with pytest.raises(SampleError, match="'refrence' is not a field of a row; allowed: reference, history"):
        piped()[0]("Write.", target="x", refrence="y")


def test_an_unusable_reply_costs_its_row():
    pipe, _ = piped(rule=lambda text: "no" if "poem" in text else LIST, scorer=ITEMS)
    good, bad, bare = pipe.run_batch([ROW, {"input": "Write a poem.", "target": "x"}, {"input": "Write a note!"}])
    assert good.score.answered == 2 and good.error is None
    assert bad.checklist is None and bad.score is None and "no" in bad.error.raw
    assert bare.checklist is not None and bare.score is None
    with pytest.raises(GenerationError):
        pipe("Write a poem.", target="x")


def test_refiners_work_on_every_checklist_and_an_emptied_one_costs_its_row():
    def reply(text: str) -> object:
        if "poem" in text:
            return "1. Is it a bad poem?\n2. Is it a poem?"
        if "note" in text:
            return "1. Is it short?\n2. Is it bad?"
        return {"reason": "it is so", "clear": "Is it short?" in text}

    refiner = {"kind": "tagger", "options": {"qualities": {"clear": "it is clear"}}}
    pipe, _ = piped(rule=reply, refiners=[refiner], scorer=ITEMS)
    refined, emptied = pipe.run_batch([ROW, {"input": "Write a poem.", "target": "x"}])
    assert [item.question for item in refined.checklist.items] == ["Is it short?"] and refined.score.total == 1
    assert refined.checklist.source.startswith("tick/") and "tagger/" in refined.checklist.source
    assert emptied.score is None and "no item is left" in str(emptied.error)


def test_a_row_whose_refiner_failed_for_now_is_done_again(tmp_path):
    reached: list[str] = []

    def reply(text: str, sampling: Sampling) -> str | Reply:
        if sampling.schema is None:
            return "1. Is it short?\n2. Is it dull?"
        if "dull" in text and not reached:
            return Reply(None, unanswered="timeout: 60 s")
        return '{"reason": "", "general": true, "specific": true}'

    fake = Replies(reply)
    pipe = pipeline("tick", model="m", backend=fake, store=tmp_path / "store", refiners=["tagger"])
    totals = Totals()
    [failed] = pipe.generate_batch(["Write a note."])
    totals.add_checklist("1", failed)
    assert str(failed) == "tagger could not refine the checklist: timeout: 60 s." and totals.transient == 1
    reached.append("the server is back")
    [checklist] = pipe.generate_batch(["Write a note."])
    assert "tagger/" in checklist.source
    assert [len(prompts) for prompts, _ in fake.sampled] == [1, 2, 1]  # only the lost reply is asked for again


def test_unit_tests_use_the_responses_of_the_row_and_want_some():
    def reply(text: str) -> object:
        bad = any(word in text for word in ("BAD", "Rewrite", "rewrite"))
        return {"response": "BAD"} if bad else written("Is it short?", weight=1)

    settings = {"refiners": ["unit_tester"], "scorer": {"mode": "item", "prompt": None, "scale": None}}
    pipe, fake = piped("rlcf_candidates_only", reply, last=0.1, **settings)
    [result] = pipe.run_batch([{**ROW, "candidates": ["one text", "another"]}])
    assert all(any(text in prefix for prefix, _, _ in fake.reads) for text in ("one text", "another"))
    assert result.checklist is None and "unit_tester: no item is left" in str(result.error)  # all rewrites pass
    pipe, fake = piped(rule=reply, refiners=["unit_tester"])
    with pytest.raises(SampleError, match="row 1: unit_tester tests the questions on responses"):
        pipe.run_batch([ROW])
    assert fake.prompts == []


# --- rows as requests and samples: answers are read, and what a person wrote is not changed


def test_refiners_test_checklists_on_answers():
    request = Request("x", candidates=("<think>2</think>4", "4", "<think>2"), chosen="5", rejected="")
    assert [sample.target for sample in samples_of(request, ())] == ["4", "5"]
    without = [Sample((), "", state="cut_in_thought"), Sample((), "4"), Sample((), "")]
    assert a_few(without) == without[1:2] and a_few(without[:1]) == without[:1]


TEXTS = ["Open with <think>.", "<think>2 + 2</think>4", "a\n</think>\nb", "finalFour"]


def test_texts_of_a_row_are_not_cut_and_of_messages_the_answer_is_used():
    names = ("reference", "history", "context", "chosen", "rejected")
    for text in TEXTS:
        assert fields_of(dict.fromkeys(names, text), "row 1") == dict.fromkeys(names, text)
    message = {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}
    found = fields_of({"reference": [message], "chosen": None, "context": ""}, "row 1")
    assert found == {"reference": "4", "chosen": None, "context": None}


@pytest.mark.parametrize(("refiners", "warned"), [([], True), (["check_admission"], False)])
def test_checks_that_nobody_compares_are_spoken_of(caplog, refiners, warned):
    pipeline("tick", model="pocket", generator={"shape": "checked"}, refiners=refiners, store=False)
    assert ("add the refiner check_admission" in caplog.text) is warned


def test_another_engine_for_the_generator():
    writer, models = Scripted(lambda text: LIST, identity="w"), {"generator_model": "w", "scorer_model": "j"}
    judge = Scripted(identity="j")
    engines = {"backend": judge, "generator_backend": writer}
    assert pipeline("tick", **models, **engines, store=False, scorer=ITEMS)(**ROW).checklist.model == "w"
    assert len(writer.prompts) == 1 and not writer.reads and len(judge.reads) == 2 and not judge.prompts
