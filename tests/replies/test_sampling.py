import pytest

from checklist_rewards.backends import Reply, Sampling
from checklist_rewards.errors import ModelError
from checklist_rewards.replies import Engine, sample_replies
from checklist_rewards.replies.sampling import CHUNK_REPLIES
from checklist_rewards.store import Store
from tests.generators.fakes import Replies

WARM = Sampling(max_tokens=8, temperature=1.0)


def user(text):
    return [{"role": "user", "content": text}]


def echo(text, sampling):
    return f"{text} {sampling.seed}"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store.sqlite")


def texts(replies):
    return [[reply.text for reply in of_prompt] for of_prompt in replies]


def test_replies_come_in_the_order_of_the_prompts():
    engine = Engine(backend=Replies(echo))
    assert texts(sample_replies(engine, [user("b"), user("a")], WARM)) == [["b 0"], ["a 0"]]


def test_equal_prompts_are_sampled_once():
    backend, done = Replies(echo), []
    prompts = [user("a"), user("b"), user("a")]
    assert texts(sample_replies(Engine(backend=backend), prompts, WARM, progress=done.append)) == [
        ["a 0"],
        ["b 0"],
        ["a 0"],
    ]
    assert backend.sampled[0][0] == ["a", "b"]
    assert sum(done) == 3


def test_a_stored_reply_is_not_sampled_again(store):
    first, second = Replies(echo), Replies(lambda text, sampling: "never asked")
    replies = sample_replies(Engine(backend=first), [user("a")], WARM, store)
    assert sample_replies(Engine(backend=second), [user("a")], WARM, store) == replies == [[Reply("a 0", "stop")]]
    assert second.sampled == []


def test_no_engine_is_built_when_the_store_has_every_reply(store):
    class Unbuilt(Engine):
        def load(self):
            raise AssertionError("the engine was built")

    sample_replies(Engine(backend=Replies(echo)), [user("a")], WARM, store)
    assert texts(sample_replies(Unbuilt(backend=Replies(echo)), [user("a")], WARM, store)) == [["a 0"]]


@pytest.mark.parametrize(
    "sampling",
    [Sampling(8, 1.0, seed=1), Sampling(9, 1.0), Sampling(8, 0.5), Sampling(8, 1.0, n=2), Sampling(8, 1.0, top_p=0.9)],
)
def test_whatever_a_sample_depends_on_asks_anew(store, sampling):
    backend = Replies(echo)
    sample_replies(Engine(backend=backend), [user("a")], WARM, store)
    replies = sample_replies(Engine(backend=backend), [user("a")], sampling, store)
    assert len(backend.sampled) == 2
    assert len(replies[0]) == sampling.n


def test_another_model_is_asked_anew(store):
    other = Replies(echo, identity="another")
    sample_replies(Engine(backend=Replies(echo)), [user("a")], WARM, store)
    sample_replies(Engine(backend=other), [user("a")], WARM, store)
    assert len(other.sampled) == 1


def test_greedy_replies_depend_on_neither_seed_nor_number(store):
    backend = Replies(lambda text, sampling: text)
    sample_replies(Engine(backend=backend), [user("a")], Sampling(8, 0.0, seed=1), store)
    assert texts(sample_replies(Engine(backend=backend), [user("a")], Sampling(8, 0.0, seed=2, n=3), store)) == [
        ["a"] * 3
    ]
    assert len(backend.sampled) == 1


def test_a_broken_chunk_costs_its_own_replies_and_is_asked_again(store):
    prompts = [user(str(i)) for i in range(CHUNK_REPLIES + 3)]
    broken = Replies(echo, breaks_at=[1])
    replies = sample_replies(Engine(backend=broken), prompts, WARM, store)
    assert {r.unanswered for (r,) in replies[:CHUNK_REPLIES]} == {"backend_error: the engine broke"}
    assert texts(replies[CHUNK_REPLIES:]) == [[f"{i} 0"] for i in range(CHUNK_REPLIES, CHUNK_REPLIES + 3)]
    again = Replies(echo)
    assert texts(sample_replies(Engine(backend=again), prompts, WARM, store)) == [
        [f"{i} 0"] for i in range(len(prompts))
    ]
    assert [len(asked) for asked, _ in again.sampled] == [CHUNK_REPLIES]


def test_a_run_that_died_asks_only_for_the_chunks_it_did_not_finish_and_asks_for_them_whole(store):
    prompts = [user(str(i)) for i in range(3 * CHUNK_REPLIES)]

    def dies(text, sampling):
        if text == str(2 * CHUNK_REPLIES):
            raise KeyboardInterrupt
        return echo(text, sampling)

    with pytest.raises(KeyboardInterrupt):
        sample_replies(Engine(backend=Replies(dies)), prompts, WARM, store)
    again, whole = Replies(echo), Replies(echo)
    resumed = sample_replies(Engine(backend=again), prompts, WARM, store)
    assert resumed == sample_replies(Engine(backend=whole), prompts, WARM)
    assert again.sampled == whole.sampled[2:]


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


def test_a_model_that_is_not_there_is_refused():
    with pytest.raises(ModelError, match="no/such/place"):
        sample_replies(Engine("/no/such/place"), [user("a")], WARM)


def test_the_pocket_model_gives_the_same_samples_in_a_rerun_and_in_another_store(pocket, tmp_path):
    prompts = [user(f'Write a note. Mention the word "{word}".') for word in ("bako", "rimo", "tuve")]
    sampling = Sampling(24, 1.0, n=2, seed=3)
    one, two = (Store(tmp_path / name) for name in ("one.sqlite", "two.sqlite"))
    replies = sample_replies(Engine(backend=pocket), prompts, sampling, one)
    assert replies == sample_replies(Engine(backend=pocket), prompts, sampling, one)
    assert replies == sample_replies(Engine(backend=pocket), prompts, sampling, two)
    assert all(reply.text is not None for of_prompt in replies for reply in of_prompt)
