"""openenv-core: `ChecklistRubric` in its containers, and in an environment behind a real server and client."""

import asyncio
import socket
import threading
import time

import pytest
import uvicorn
from conftest import INPUT
from openenv.core import GenericEnvClient
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.rubrics import Gate, Rubric, Sequential, WeightedSum

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.chat import CompletionReader
from checklist_rewards.rewards.integrations.labelled import Unscored
from checklist_rewards.rewards.integrations.openenv import ChecklistRubric

CHECKLIST = [
    {"question": "Does the response contain the word moon?", "scope": "final"},
    {"question": "Is the response free of digits?", "scope": "every_turn"},
    {"question": "Does the result have at most 3 words?", "scope": "every_tool_result",
     "check": {"type": "words", "at_most": 3}},
]  # fmt: skip
EPISODE = ["the 3 lamo", "the moon is up."]


class Say(Action):
    message: str


class Heard(Observation):
    answer: str = ""


class Talk(Environment):
    """Says "again" once; the second message ends the episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, rubric):
        super().__init__(rubric=rubric)
        self.said = 0

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._reset_rubric()
        self.said = 0
        return Heard(answer=INPUT)

    def step(self, action, timeout_s=None, **kwargs):
        observation = self._seen()
        observation.reward = self._apply_rubric(action, observation)
        return observation

    def _seen(self):
        self.said += 1
        return Heard(answer="again" if self.said == 1 else "bye", done=self.said == 2)

    @property
    def state(self):
        return State(step_count=self.said)


class TalkAsync(Talk):
    async def step_async(self, action, timeout_s=None, **kwargs):
        observation = self._seen()
        observation.reward = await self._apply_rubric_async(action, observation)
        return observation


class Leaves(Talk):
    """Leaves the reward of an episode that was not judged empty."""

    def step(self, action, timeout_s=None, **kwargs):
        try:
            return super().step(action)
        except Unscored:
            return Heard(answer="bye", done=True, reward=None)


class Always(Rubric):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        return self.value


@pytest.fixture
def expected(server) -> float:
    messages = [
        {"role": "assistant", "content": EPISODE[0]},
        {"role": "tool", "content": "answer: again"},
        {"role": "assistant", "content": EPISODE[1]},
        {"role": "tool", "content": "answer: bye"},
    ]
    target = CompletionReader(part="transcript").read(messages)
    scorer = ChecklistScorer(backend="remote", base_url=server)
    [score] = scorer.score_batch([Sample(CHECKLIST, target.text, INPUT, messages=target.messages)])
    assert score.primary_score is not None
    return score.primary_score


def rubric(server, **settings):
    return ChecklistRubric(CHECKLIST, text="message", prompt=INPUT, backend="remote", base_url=server, **settings)


def test_the_episode_is_a_conversation_and_actions_without_text_are_calls(server):
    one = ChecklistRubric(["Is it?"], backend="remote", base_url=server)
    one._trajectory = [(Say(message="a"), Heard(answer="b"))]
    assert CompletionReader(part="transcript").read(one.messages()).text == (
        'assistant calls Say(message="a")\n\ntool: answer: b'
    )
    one.text = "message"
    assert CompletionReader(part="transcript").read(one.messages()).text == "assistant: a\n\ntool: answer: b"


def test_containers_compose_the_value(server, expected):
    made = Sequential(Gate(Always(1.0)), WeightedSum([Always(1.0), rubric(server)], [0.25, 0.75]))
    environment = Talk(made)
    environment.reset()
    first, last = (environment.step(Say(message=text)) for text in EPISODE)
    assert first.reward == pytest.approx(0.25)
    assert last.reward == pytest.approx(0.25 + 0.75 * expected, abs=1e-4)
    assert made.get_rubric("rubric_1.rubric_1").last_score == pytest.approx(expected, abs=1e-4)
    assert Gate(Always(expected), threshold=1.1)(None, None) == 0.0

    async def run():
        environment = TalkAsync(WeightedSum([Always(1.0), rubric(server)], [0.25, 0.75]))
        environment.reset()
        return [(await environment.step_async(Say(message=text))).reward for text in EPISODE]

    assert asyncio.run(run()) == pytest.approx([0.25, 0.25 + 0.75 * expected], abs=1e-4)


@pytest.mark.parametrize("environment", [Talk, TalkAsync])
def test_a_server_and_a_client(server, environment, expected):
    with served(lambda: environment(rubric(server))) as url:
        assert episode(url)[-1].reward == pytest.approx(expected, abs=1e-4)
        assert episode(url)[0].reward == 0.0


def test_a_failure_is_an_error_or_an_empty_reward_and_never_a_score(silent_judge):
    def failing():
        return ChecklistRubric(["Is it?"], text="message", **silent_judge)

    for made in (failing(), Gate(failing(), 0.5), Sequential(Always(1.0), failing()), WeightedSum([failing()], [1.0])):
        environment = Talk(made)
        environment.reset()
        environment.step(Say(message="a"))
        with pytest.raises(Unscored, match="the judge answered 0 of 1 items"):
            environment.step(Say(message="b"))
    assert environment.rubric.get_rubric("rubric_0").last_score is None
    with served(lambda: Talk(failing())) as url, pytest.raises(RuntimeError, match="the judge answered 0 of 1 items"):
        episode(url)
    with served(lambda: Leaves(failing())) as url:
        last = episode(url)[-1]
        assert last.done and last.reward is None


def episode(url):
    with GenericEnvClient(base_url=url).sync() as client:
        client.reset()
        return [client.step({"message": text}) for text in EPISODE]


class served:
    """A real server of the environment on a free port."""

    def __init__(self, factory):
        self.app = create_fastapi_app(factory, Say, Heard)

    def __enter__(self):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.server = uvicorn.Server(uvicorn.Config(self.app, log_level="warning"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def __exit__(self, *error):
        self.server.should_exit = True
        self.thread.join()
