import pytest
from PIL import Image

from checklist_rewards.backends import Engine, Reply, Sampling
from checklist_rewards.backends import replies as sampling_module
from checklist_rewards.backends.replies import sample_replies, target_of
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.files.store import Store
from tests.backends.answers import user
from tests.generators.fakes import Replies

WARM = Sampling(max_tokens=8, temperature=1.0)
CALL = {"function": {"name": "add", "arguments": "{}"}}


def echo(text, sampling):
    return f"{text} {sampling.seed}"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store.sqlite")


def texts(replies):
    return [[reply.text for reply in of_prompt] for of_prompt in replies]


def test_replies_come_in_the_order_of_the_prompts_and_equal_prompts_are_sampled_once():
    backend, done = Replies(echo), []
    replies = sample_replies(Engine(backend=backend), [user("b"), user("a"), user("b")], WARM, progress=done.append)
    assert texts(replies) == [["b 0"], ["a 0"], ["b 0"]]
    assert backend.sampled[0][0] == ["b", "a"] and sum(done) == 3


def test_no_engine_is_built_when_the_store_has_every_reply(store):
    class Unbuilt(Engine):
        def load(self):
            raise AssertionError("the engine was built")

    replies = sample_replies(Engine(backend=Replies(echo)), [user("a")], WARM, store)
    again = sample_replies(Unbuilt(backend=Replies(echo)), [user("a")], WARM, store)
    assert again == replies == [[Reply("a 0", "stop")]]


@pytest.mark.parametrize(
    ("sampling", "model"),
    [
        *((Sampling(8, 1.0, seed=1), "fake"), (Sampling(9, 1.0), "fake"), (Sampling(8, 0.5), "fake")),
        *((Sampling(8, 1.0, n=2), "fake"), (Sampling(8, 1.0, top_p=0.9), "fake"), (WARM, "another")),
    ],
)
def test_other_sampling_and_another_model_ask_anew(store, sampling, model):
    sample_replies(Engine(backend=Replies(echo, identity="fake")), [user("a")], WARM, store)
    other = Replies(echo, identity=model)
    [replies] = sample_replies(Engine(backend=other), [user("a")], sampling, store)
    assert len(other.sampled) == 1 and len(replies) == sampling.n


@pytest.mark.parametrize(
    "field", [{"tool_calls": [CALL]}, {"name": "x"}, {"reasoning_content": "so"}, {"tool_call_id": "1"}], ids=str
)
def test_messages_that_differ_in_another_field_have_other_replies(field, store):
    backend = Replies(echo)
    plain = [*user("a"), {"role": "assistant", "content": "b"}]
    for other, asked in (({}, 1), (field, 2), ({"tool_calls": None}, 2)):  # a field with None counts as absent
        sample_replies(Engine("m", backend), [[plain[0], plain[1] | other]], WARM, store)
        assert len(backend.sampled) == asked


def test_greedy_replies_depend_on_neither_seed_nor_number(store):
    backend = Replies(lambda text, sampling: text)
    sample_replies(Engine(backend=backend), [user("a")], Sampling(8, 0.0, seed=1), store)
    [replies] = sample_replies(Engine(backend=backend), [user("a")], Sampling(8, 0.0, seed=2, n=3), store)
    assert texts([replies]) == [["a"] * 3] and len(backend.sampled) == 1


def breaks(text, sampling):
    if text == "break":
        raise BackendError("the engine broke")
    return echo(text, sampling)


def test_a_broken_engine_costs_the_replies_that_had_not_arrived_and_they_are_asked_for_again(store):
    prompts = [user(text) for text in ("a", "b", "break", "c")]
    replies = sample_replies(Engine(backend=Replies(breaks)), prompts, WARM, store)
    lost = "backend_error: the engine broke"
    assert [(r.text, r.unanswered) for (r,) in replies] == [("a 0", None), ("b 0", None), (None, lost), (None, lost)]
    again = Replies(echo)
    found = sample_replies(Engine(backend=again), prompts, WARM, store)
    assert texts(found) == [["a 0"], ["b 0"], ["break 0"], ["c 0"]]
    assert [asked for asked, _ in again.sampled] == [["break", "c"]]


def test_replies_are_stored_while_the_engine_is_at_work(store, monkeypatch):
    monkeypatch.setattr(sampling_module, "STORE_SECONDS", 0)
    stored = []

    def rule(text, sampling):
        stored.append(len(Store(store.path)))
        return text

    sample_replies(Engine(backend=Replies(rule)), [user(text) for text in "abc"], WARM, store)
    assert stored == [0, 1, 2]


def test_an_interruption_keeps_what_had_arrived_and_the_rest_is_as_if_nothing_had_happened(store):
    def interrupted(count):
        seen.append(count)
        if len(seen) == 3:
            raise KeyboardInterrupt

    prompts, seen = [user(text) for text in "abcde"], []
    with pytest.raises(KeyboardInterrupt):
        sample_replies(Engine(backend=Replies(echo)), prompts, WARM, store, interrupted)
    again = Replies(echo)
    resumed = sample_replies(Engine(backend=again), prompts, WARM, store)
    assert [asked for asked, _ in again.sampled] == [["d", "e"]]
    assert resumed == sample_replies(Engine(backend=Replies(echo)), prompts, WARM)


def test_progress_is_told_of_every_reply_as_it_arrives(store):
    sample_replies(Engine(backend=Replies(echo)), [user("a")], WARM, store)
    seen = []
    prompts = [user(text) for text in ("a", "b", "c", "b", "a")]
    sample_replies(Engine(backend=Replies(echo)), prompts, WARM, store, seen.append)
    assert seen == [2, 2, 1]  # the stored one, then b, which was asked for twice, then c


def test_a_prompt_that_is_too_long_says_so_and_stays_so(store):
    backend = Replies(lambda text, sampling: Reply(None, unanswered="too_long"))
    for _ in range(2):
        [[reply]] = sample_replies(Engine(backend=backend), [user("a")], WARM, store)
        assert reply.unanswered == "too_long"
    assert len(backend.sampled) == 1


def test_the_first_process_to_store_a_reply_decides_it(store):
    def beaten(text, sampling):
        sample_replies(Engine(backend=Replies(lambda text, sampling: "theirs")), [user("a")], WARM, store)
        return "ours"

    assert texts(sample_replies(Engine(backend=Replies(beaten)), [user("a")], WARM, store)) == [["theirs"]]


def test_the_pocket_model_gives_the_same_samples_in_any_company(pocket):
    prompts = [user(f'Write a note. Mention the word "{word}".') for word in ("bako", "rimo", "tuve")]
    sampling = Sampling(12, 1.0, n=2, seed=3)
    replies = sample_replies(Engine(backend=pocket), prompts, sampling)
    assert all(reply.text is not None for of_prompt in replies for reply in of_prompt)
    assert replies[1:2] == sample_replies(Engine(backend=pocket), prompts[1:2], sampling)
    assert replies[::-1] == sample_replies(Engine(backend=pocket), prompts[::-1], sampling)


def test_parts_of_text_are_one_text_and_others_are_refused(store):
    backend = Replies(echo)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = sample_replies(Engine("m", backend), [user(parts), user("ab")], WARM, store)
    assert texts(found) == [["ab 0"], ["ab 0"]]
    audio = [{"role": "user", "content": [{"type": "audio", "audio": "x.wav"}]}]
    with pytest.raises(SampleError, match="prompt 2: only text and images can be sent to this model"):
        sample_replies(Engine("m", backend), [user("a"), audio], WARM, store)
    image = [{"role": "user", "content": [{"type": "image", "image": Image.new("RGB", (2, 2))}]}]
    with pytest.raises(SampleError, match="prompt 2 has an image, but the model 'm' reads text only"):
        sample_replies(Engine("m", backend), [user("a"), image], WARM, store)
    assert texts(sample_replies(Engine("m", backend), [user(None)], WARM)) == [[" 0"]]


@pytest.mark.parametrize(
    ("reply", "text", "state"),
    [
        (Reply("fine", "stop"), "fine", "answered"),
        (Reply("fi", "length"), "fi", "cut"),
        (Reply("<think>so</think>fine", "stop"), "fine", "answered"),
        (Reply("<think>so", "length"), "", "cut_in_thought"),
        (Reply("fine", "stop", thought="so"), "fine", "answered"),
        (Reply("", "length", thought="so"), "", "cut_in_thought"),
        (Reply("", "stop"), "", "empty"),
    ],
)
def test_what_a_reply_answers(reply, text, state):
    target = target_of(reply)
    assert (target.text, target.state) == (text, state)
