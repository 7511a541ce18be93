"""Any OpenAI-compatible server: OpenAI, OpenRouter, `vllm serve`, one of your own.

`backend` is the engine that the rest of the package sees. Below it, `chat` and `completions` write requests and read
answers, `connection` sends one request until it is answered or given up, `failures` says what went wrong, `breaker`
stops asking a server that is gone, `pace` keeps to a rate, and `loop` is the thread in which all of it runs.
"""

from checklist_rewards.backends.openai.backend import OpenAIBackend

__all__ = ["OpenAIBackend"]
