"""What `datasets/ray.py` uses of Ray, in this process and without a cluster.

A call runs when it is waited for, one call at a time and in the order of the calls. Arguments and results are pickled
as Ray does it, and an error in a call arrives as Ray's `RayTaskError`. What only a cluster shows is in `test_ray.py`.
"""

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from ray import cloudpickle
from ray.exceptions import RayTaskError


def copied(value: Any) -> Any:
    """The value as another process would get it."""
    return cloudpickle.loads(cloudpickle.dumps(value))


class InlineCall:
    """A call of an actor or of a function. It runs at most once."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any]):
        self._function, self._arguments = function, copied(arguments)
        self._ran, self._result, self._error = False, None, None

    def result(self) -> Any:
        """The result, or the error as Ray raises it."""
        if not self._ran:
            self._ran = True
            try:
                self._result = copied(self._function(*self._arguments))
            except Exception as error:  # a task may raise anything
                self._error = RayTaskError(self._function.__name__, traceback.format_exc(), error)
        if self._error is not None:
            raise self._error
        return self._result


class InlineMethod:
    """A function, or a method of an actor, with Ray's `remote`."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def remote(self, *arguments: Any) -> InlineCall:
        return InlineCall(self._function, arguments)


class InlineActor:
    """An actor; each of its methods has `remote`."""

    def __init__(self, instance: Any):
        self._instance = instance

    def __getattr__(self, name: str) -> InlineMethod:
        return InlineMethod(getattr(self._instance, name))


class InlineRay:
    """The functions of the module `ray`. `actors` holds the actors that were started and not killed."""

    def __init__(self):
        self.actors: list[InlineActor] = []
        self.started = 0

    def is_initialized(self) -> bool:
        return True

    def remote(self, target: Any) -> Any:
        return InlineClass(self, target) if isinstance(target, type) else InlineMethod(target)

    def get(self, calls: Any) -> Any:
        return [call.result() for call in calls] if isinstance(calls, list) else calls.result()

    def wait(self, calls: list[InlineCall], *, num_returns: int, timeout: float) -> tuple[list, list]:
        return calls[:num_returns], calls[num_returns:]

    def kill(self, actor: InlineActor) -> None:
        self.actors.remove(actor)


class InlineClass:
    """A class whose instances are actors."""

    def __init__(self, owner: InlineRay, kind: type):
        self._owner, self._kind = owner, kind

    def options(self, **options: Any) -> "InlineClass":
        return self

    def remote(self, *arguments: Any) -> InlineActor:
        actor = InlineActor(self._kind(*copied(arguments)))
        self._owner.actors.append(actor)
        self._owner.started += 1
        return actor
