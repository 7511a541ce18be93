import random

import pytest

from checklist_rewards import Checklist, __version__
from checklist_rewards.backends import Reply
from checklist_rewards.errors import GenerationError, ModelError, PromptError, SampleError
from checklist_rewards.generators import DirectGenerator, Request
from checklist_rewards.generators.shapes import Questions
from tests.generators.fakes import Replies

GOOD = "1. Is it short?\n2. Does it name a city?"


def writes(rule, **settings):
    backend = Replies(rule if callable(rule) else lambda text, sampling: rule)
    return DirectGenerator("fake", backend=backend, **{"store": False} | settings), backend


def test_the_prompt_carries_what_there_is():
    generator, backend = writes(GOOD)
    generator.generate("THE INPUT", reference="THE REFERENCE", history="THE HISTORY")
    generator.generate("THE INPUT")
    (full,), (bare,) = (texts for texts, _ in backend.sampled)
    assert all(part in full for part in ("THE INPUT", "THE REFERENCE", "THE HISTORY"))
    assert "Reference answer" not in bare and "Conversation" not in bare


@pytest.mark.parametrize(
    ("reply", "settings", "seeds", "message"),
    [
        (lambda text, sampling: GOOD if sampling.seed == 7 else "no list", {"seed": 5}, [5, 6, 7], None),
        ("no list", {"temperature": 0.0}, [0], "0 different questions"),  # another greedy reply is the same
        (Reply(GOOD, "length"), {"max_tokens": 20}, [0, 1, 2], "cut off at max_tokens=20"),
        (Reply(None, unanswered="too_long"), {}, [0], "too_long"),  # another sample is as long
    ],
)
def test_an_unusable_reply_is_asked_for_again_where_that_may_help(reply, settings, seeds, message):
    generator, backend = writes(reply, **settings)
    if message is None:
        assert isinstance(generator.generate("a"), Checklist)
    else:
        with pytest.raises(GenerationError, match=message) as failed:
            generator.generate("a")
        last = reply("a", backend.sampled[-1][1]) if callable(reply) else reply
        assert failed.value.raw == (last if isinstance(last, str) else last.text or "")
    assert [sampling.seed for _, sampling in backend.sampled] == seeds


def test_one_unusable_reply_costs_one_checklist_and_a_rerun_finds_every_attempt_in_the_store(tmp_path):
    def rule(text, sampling):
        return "no list" if "BAD" in text else GOOD

    made = []
    for calls in ([3, 1, 1], []):  # only the unusable one is asked for again, and none by the rerun
        generator, backend = writes(rule, store=tmp_path / "store.sqlite")
        first, failed, last = generator.generate_batch(["good", "BAD", "better"])
        assert isinstance(failed, GenerationError) and failed.raw == "no list"
        assert [len(texts) for texts, _ in backend.sampled] == calls
        made.append((first, last))
    assert made[0] == made[1] and all(isinstance(checklist, Checklist) for checklist in made[0])


def test_progress_counts_every_request_once():
    done = []
    generator, _ = writes(lambda text, sampling: GOOD if sampling.seed else "no list")
    generator.generate_batch(["a", "b", "a"], done.append)
    assert sum(done) == 3


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("  ", "request 2: the input is blank"),
        (Request("a", reference=["b"]), "request 2: reference must be a string, got list"),
    ],
)
def test_a_request_that_cannot_be_used_is_refused_before_anything_is_asked(request_, message):
    generator, backend = writes(GOOD)
    with pytest.raises(SampleError, match=message):
        generator.generate_batch(["a", request_])
    assert backend.sampled == []


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"min_items": 3, "max_items": 2}, SampleError, "max_items=2"),
        ({"min_items": 0}, SampleError, "min_items=0"),
        ({"max_items": 2.5}, SampleError, "max_items=2.5"),
        ({"prompt": "generators/none"}, PromptError, "prompt not found: 'generators/none'"),
        ({"model": "/no/such/model"}, ModelError, "/no/such/model"),
        (
            {"shape": Questions, "drop_faults": True},
            SampleError,
            "drop_faults is for numbered lists only, but replies",
        ),
        ({"shape": Questions, "model": "english-writer"}, SampleError, "english-writer writes numbered lists only"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(settings, error, message):
    with pytest.raises(error, match=message):
        DirectGenerator(store=False, **settings).generate("a")


def test_a_prompt_of_ones_own_names_the_source(tmp_path):
    (tmp_path / "mine.md").write_text("# User\n\nAsk about {input}")
    generator, backend = writes(GOOD, prompt=tmp_path / "mine.md")
    assert generator.generate("a city").source == f"mine/{__version__}"
    assert backend.sampled[0][0][0].startswith("Ask about <input-")


def test_the_pocket_model_asks_about_what_its_instruction_asks_for(pocket):
    from pocket.world import parse_question, sample_task

    rng = random.Random(5)
    tasks = [sample_task(rng, split="test") for _ in range(12)]
    generator = DirectGenerator("pocket", backend=pocket, store=False)
    made = generator.generate_batch([task.instruction for task in tasks])
    found = wanted = wrong = 0
    for task, checklist in zip(tasks, made, strict=True):
        assert isinstance(checklist, Checklist), checklist
        asked = {parse_question(item.question) for item in checklist.items}
        wanted += len(set(task.constraints))
        found += len(asked & set(task.constraints))
        wrong += len(asked - set(task.constraints))
    assert found >= 0.9 * wanted and wrong <= 0.1 * wanted
