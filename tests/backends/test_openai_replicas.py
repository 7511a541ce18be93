"""Which replica gets a request: equal keys, few moves when one fails, bounded loads, one probe at a time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checklist_rewards.backends.openai.replicas import FREE_READS, LOAD_FACTOR, Replicas, prefix_key

ADDRESSES = ["http://one:8000/v1", "http://two:8000/v1", "http://three:8000/v1"]
keys = st.lists(st.text(max_size=8), min_size=1, max_size=20, unique=True)
fleets = st.integers(1, 8).map(lambda count: [f"http://judge{n}:8000/v1" for n in range(count)])


def detector(addresses: list[str], failures: int = 32, patience: float = 120.0) -> Replicas:
    """Replicas that are probed after a second."""
    return Replicas(addresses, 1.0, failures, patience)


def place_of(replicas: Replicas, key: str, now: float = 0.0) -> int:
    """The replica of a request that is answered at once."""
    sent = replicas.choose(key, now)
    replicas.answered(sent)
    return sent.place


def fail(replicas: Replicas, place: int, now: float = 0.0, **why: object) -> bool:
    """Whether a replica is set aside after a request that failed at once."""
    return replicas.failed(replicas.send_to(place, now), now, **why)


@given(fleets, keys, st.randoms())
def test_a_key_has_one_replica_for_all_clients_whatever_the_order_of_their_addresses(addresses, keys, random):
    shuffled = random.sample(addresses, len(addresses))
    ours, theirs = detector(addresses), detector(shuffled)
    homes = [addresses[ours.home(key)] for key in keys]
    assert homes == [addresses[place_of(ours, key)] for key in keys]
    assert homes == [shuffled[place_of(theirs, key)] for key in keys]


@given(st.integers(2, 8), keys, st.data())
def test_a_replica_that_fails_moves_only_its_own_keys_until_it_answers(count, keys, data):
    replicas = detector([f"http://judge{n}" for n in range(count)])
    dead = data.draw(st.integers(0, count - 1))
    before = {key: place_of(replicas, key) for key in keys}
    fail(replicas, dead)
    during = {key: place_of(replicas, key) for key in keys}
    assert all((during[key] == place) != (place == dead) for key, place in before.items())
    replicas.answered(replicas.send_to(dead, 0.0))
    assert {key: place_of(replicas, key) for key in keys} == before


@given(fleets, st.lists(st.tuples(st.text(max_size=2), st.integers(1, 300), st.booleans()), max_size=60))
def test_a_request_never_goes_to_a_busy_replica(addresses, requests):
    replicas, reads, running = detector(addresses), [0] * len(addresses), []
    for key, count, ends in requests:
        bound = max(FREE_READS, LOAD_FACTOR * sum(reads) / len(reads))
        sent = replicas.choose(key, 0.0, count)
        assert reads[sent.place] <= bound
        assert all(reads[place] > bound for place in replicas.order(key)[: replicas.order(key).index(sent.place)])
        reads[sent.place] += count
        running.append(sent)
        if ends:
            done = running.pop(0)
            replicas.answered(done)
            reads[done.place] -= done.reads


def test_keys_are_spread_evenly():
    replicas = detector(ADDRESSES)
    counts = Counter(place_of(replicas, prefix_key("Be fair.", f"text {number}")) for number in range(3000))
    assert all(count == pytest.approx(1000, rel=0.15) for count in counts.values()) and len(counts) == 3


def test_requests_in_flight_do_not_lengthen_the_pause_of_the_replica_that_lost_them():
    replicas = detector(ADDRESSES)
    sent = [replicas.send_to(0, 0.0) for _ in range(100)]
    assert all(replicas.failed(one, 0.0) for one in sent)
    assert [replicas.choose(str(key), 1.0).probe for key in range(30)].count(True) == 1


def test_a_replica_may_say_when_to_come_back_and_the_longest_wait_of_requests_in_flight_counts():
    replicas = detector(ADDRESSES[:1])
    sent = [replicas.send_to(0, 0.0) for _ in range(3)]
    for one, wait in zip(sent, (None, 9.0, 2.0), strict=True):
        replicas.failed(one, 0.0, wait=wait)
    assert replicas.due() == 9.0


def test_some_failures_are_tolerated_if_answers_come_between():
    replicas = detector(ADDRESSES)
    for _ in range(10):
        assert not fail(replicas, 0, tolerated=1)
        replicas.answered(replicas.send_to(0, 0.0))
    assert not fail(replicas, 0, tolerated=1)
    assert fail(replicas, 0, tolerated=1)


def test_a_request_avoids_the_replicas_that_failed_it_as_long_as_there_are_others():
    replicas = detector(ADDRESSES)
    order = replicas.order("key")
    assert [replicas.choose("key", 0.0, avoid=order[:count]).place for count in range(4)] == [*order, order[0]]


def test_with_all_replicas_aside_the_next_one_due_is_tried():
    replicas = detector(ADDRESSES)
    for place, now in ((0, 3.0), (1, 1.0), (2, 2.0)):
        fail(replicas, place, now)
    assert replicas.up() == set() and replicas.choose("key", 0.0).place == 1


# ----- the server as a whole -----


def probes_until_gone(replicas: Replicas, step: float = 0.5) -> list[float]:
    """When probes of a server that never answers are sent, until it counts as gone."""
    now, probes = 0.0, []
    while not replicas.is_gone(now):
        while (sent := replicas.choose("key", now)) is not None:
            probes.append(now)
            replicas.failed(sent, now, reason="status 500")
        assert replicas.wait(now) > 0
        now += step
    return probes


def test_a_server_that_is_gone_is_probed_with_longer_and_longer_pauses_then_given_up_then_probed_again():
    replicas = detector(ADDRESSES[:1], failures=2, patience=10.0)
    fail(replicas, 0)
    assert replicas.down_since is None  # it is aside, and did not fail of itself
    assert probes_until_gone(replicas) == [0, 0, 1, 3, 7, 10]
    assert replicas.last == "status 500" and replicas.down_since == 0
    assert replicas.choose("key", 19.9) is None and replicas.is_gone(19.9) and replicas.wait(15.0) == 5
    assert not replicas.is_gone(20.0) and replicas.wait(20.0) == 0
    replicas.answered(replicas.choose("key", 20.0))
    assert replicas.up() == {0} and replicas.down_since is None and not replicas.choose("key", 20.0).probe
    assert fail(replicas, 0, 21.0, reason="status 500") and replicas.due() == 22.0


@pytest.mark.parametrize("together", [True, False])
def test_a_server_is_given_up_only_after_the_last_probe_of_each_replica(together):
    replicas = detector(ADDRESSES[:2], failures=1, patience=10.0)
    for now in (0.0, 1.0, 3.0, 7.0):
        for place in (0, 1):
            fail(replicas, place, now, reason="status 500")
    first = replicas.choose("key", 10.0)  # when the patience ends
    second = replicas.choose("key", 10.0) if together else None
    replicas.failed(first, 10.0, reason="status 500")
    assert not replicas.is_gone(10.0)
    second = second or replicas.choose("key", 10.0)
    assert {first.place, second.place} == {0, 1}
    replicas.failed(second, 10.0, reason="status 500")
    assert replicas.is_gone(19.9) and replicas.choose("key", 19.9) is None
    replicas.answered(replicas.choose("key", 20.0))  # when the time ends in which the server counts as gone
    assert replicas.down_since is None


def test_requests_that_were_in_flight_when_a_server_broke_down_do_not_put_off_its_probes():
    replicas = detector(ADDRESSES[:1], failures=1, patience=10.0)
    first, late = replicas.send_to(0, 0.0), replicas.send_to(0, 0.0)
    replicas.failed(first, 0.0, reason="timeout")
    replicas.failed(late, 60.0, reason="timeout")
    assert not replicas.is_gone(60.0) and replicas.choose("key", 60.0).probe


def test_a_late_response_ends_an_outage_and_a_late_failure_is_no_probe():
    replicas = detector(ADDRESSES[:1], failures=2, patience=10.0)
    late = [replicas.send_to(0, 0.0) for _ in range(2)]
    assert probes_until_gone(replicas)[-1] == 10 and replicas.is_gone(17.0)
    replicas.answered(late[0])
    for _ in range(2):
        replicas.failed(replicas.choose("key", 17.0), 17.0, reason="timeout")
    assert replicas.down_since == 17.0 and not replicas.is_gone(17.0)
    assert replicas.choose("key", 18.0).probe
    replicas.failed(late[1], 18.0, reason="timeout")
    assert replicas.choose("key", 18.0) is None, "the probe is still under way"


def test_a_server_is_down_only_if_all_its_replicas_are():
    replicas = detector(ADDRESSES, failures=4)
    for place in (0, 1, 0, 1, 0, 1):
        fail(replicas, place, reason="status 500")
    assert replicas.down_since is None and replicas.choose("key", 0.0).place == 2
    for _ in range(4):
        fail(replicas, 2, 0.5, tolerated=3, reason="status 500")
    assert replicas.down_since == 0.5


def test_only_one_request_probes_each_replica_of_a_server_that_is_down():
    replicas = detector(ADDRESSES[:2], failures=1)
    for place in (0, 1):
        fail(replicas, place, reason="status 500")
    assert replicas.choose("key", 0.9) is None and replicas.wait(0.9) == pytest.approx(0.1)
    probes = [replicas.choose("key", 1.0) for _ in range(3)]
    assert {sent.place for sent in probes[:2]} == {0, 1} and probes[2] is None and replicas.wait(1.0) == float("inf")
    replicas.released(probes[0])  # cancelled: another one may probe at once
    assert replicas.wait(1.0) == 0 and replicas.choose("key", 1.0).place == probes[0].place
    replicas.failed(probes[1], 1.0, wait=9.0)  # status 429: neither a failure nor a response
    assert replicas.down_since == 0.0 and replicas.due() == 1.0


def test_a_replica_without_others_gets_requests_although_it_is_aside():
    replicas = detector(ADDRESSES[:1], failures=9)
    fail(replicas, 0)
    forced = replicas.choose("key", 0.1)
    assert forced.probe and replicas.choose("key", 0.1) is not None
    replicas.failed(forced, 0.2, reason="status 503")
    assert replicas.due() == 1.0, "the pause does not grow before a probe was due"
