"""Every error that this package raises on purpose.

Each message is one sentence for a user: what was got, what is allowed, where (file, row, item), what to do. A failed
    *read*
is not an error: it is a verdict with a reason (see `scores.py`).
"""


class ChecklistRewardsError(Exception):
    """Base of all errors below; the CLI prints them as one line and exits with 2."""


class ChecklistError(ChecklistRewardsError, ValueError):
    """A checklist, an item or a weight that cannot be used."""


class PromptError(ChecklistRewardsError, ValueError):
    """A prompt template that fails the lint, or a sample that lacks what its prompt needs."""


class SampleError(ChecklistRewardsError, ValueError):
    """A sample, row or file that cannot be scored as it is."""


class ModelError(ChecklistRewardsError, ValueError):
    """A model that cannot be found, loaded, or used as a judge (for example: yes and no share a token)."""


class BackendError(ChecklistRewardsError, RuntimeError):
    """An engine that failed while it was running. The reads concerned stay unanswered; nothing is scored."""


class GenerationError(ChecklistRewardsError, RuntimeError):
    """A checklist could not be read from a model's reply; carries the raw text.

    Args:
        message (`str`): what was wrong, for the user.
        raw (`str`): the model's last reply, unchanged.
    """

    def __init__(self, message: str, raw: str = ""):
        super().__init__(message)
        self.raw = raw

    def __reduce__(self):
        return type(self), (self.args[0], self.raw)


class StoreError(ChecklistRewardsError, RuntimeError):
    """The verdict store cannot be opened."""
