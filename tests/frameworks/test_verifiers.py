"""verifiers: `Task.score` with the reward in the task's code and in its configuration."""

import asyncio

import pytest
import verifiers.v1 as vf
from conftest import CHECKLIST, INPUT, TEXTS, TURNS, score_of_turns
from verifiers.v1.configs.task import RewardFunctionConfig
from verifiers.v1.graph import prepare_turn

from checklist_rewards.rewards.integrations.verifiers import ChecklistJudge, completion_of

FUNCTION = "checklist_rewards.rewards.integrations.verifiers:checklist_reward"


class Data(vf.TaskData):
    checklist: list = CHECKLIST


class DecoratedTask(vf.Task[Data, vf.State]):
    @vf.reward
    async def checklist(self, trace) -> float:
        return await ChecklistJudge().score(self.data, trace)


class PlainTask(vf.Task[Data, vf.State]):
    """A task that gets the reward by its configuration."""


def configured_task(data: Data) -> PlainTask:
    return PlainTask(data, vf.TaskConfig(rewards={"checklist": RewardFunctionConfig(fn=FUNCTION)}))


def trace_of(task, text: str) -> vf.Trace:
    """A finished rollout whose root agent replied with this text."""
    return vf.Trace[Data, vf.State, vf.AgentConfig](
        task=vf.TraceTask(type=type(task).__name__, data=task.data),
        agent=vf.AgentInfo(name="agent", config=vf.AgentConfig()),
        root_reply=text,
    )


def scored(task_of, data: Data, texts: list[str]) -> list[vf.Trace]:
    async def all_of_them():
        tasks = [task_of(data) for _ in texts]
        traces = [trace_of(task, text) for task, text in zip(tasks, texts, strict=True)]
        await asyncio.gather(*[task.score(trace) for task, trace in zip(tasks, traces, strict=True)])
        return traces

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("task_of", [DecoratedTask, configured_task])
def test_tasks_are_scored(judge, configure, expected, task_of):
    configure(judge)
    traces = scored(task_of, Data(prompt=INPUT), TEXTS)
    assert [trace.rewards["checklist"].value for trace in traces] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("task_of", [DecoratedTask, configured_task])
def test_failures_leave_the_reward_empty(server, silent_judge, configure, task_of):
    configure(silent_judge)
    task = task_of(Data(prompt=INPUT))
    trace = trace_of(task, TEXTS[0])
    with pytest.raises(vf.TaskError, match="Unscored: the judge answered 0 of 2 items"):
        asyncio.run(task.score(trace))
    assert trace.rewards == {"checklist": None}


def test_an_invalid_checklist_is_a_task_error(server, configure):
    configure({"backend": "remote", "base_url": server})
    task = DecoratedTask(Data(prompt=INPUT, checklist=[]))
    with pytest.raises(vf.TaskError, match="ChecklistError: .*empty"):
        asyncio.run(task.score(trace_of(task, TEXTS[0])))


def test_a_trace_of_several_turns_is_judged_with_its_calls_and_results(server, configure):
    """The turns are committed as verifiers does for each request of a rollout. The prompt has an example, which the
    model did not write."""
    configure({"backend": "remote", "base_url": server})
    task = DecoratedTask(Data(prompt=INPUT, checklist=TURNS["checklist"]))
    trace = trace_of(task, "")
    trace.root_reply = None
    call = vf.ToolCall(id="1", name="look", arguments='{"word": "moon"}')
    example = [vf.UserMessage(content="Say 3."), vf.AssistantMessage(content="3 3 3")]
    asked = [*example, vf.UserMessage(content=INPUT)]
    looked = vf.AssistantMessage(content="Let me look.", tool_calls=[call])
    found = vf.ToolMessage(tool_call_id="1", content=TURNS["result"])
    answered = vf.AssistantMessage(content=TURNS["answer"])
    for prompt, reply in ((asked, looked), ([*asked, looked, found], answered)):
        prepare_turn(trace, prompt).commit(
            vf.Response(id="r", created=0, model="m", message=reply, finish_reason="stop")
        )
    assert [message["role"] for message in completion_of(trace)] == ["assistant", "tool", "assistant"]
    asyncio.run(task.score(trace))
    assert trace.rewards["checklist"].value == pytest.approx(score_of_turns(server), abs=1e-4)
