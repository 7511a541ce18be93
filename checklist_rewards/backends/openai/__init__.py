"""Client for OpenAI-compatible servers: OpenAI, OpenRouter, `vllm serve`, or your own.

`backend` implements the engine. `chat` and `completions` create requests and parse responses. `connection` sends a
request, with retries. `failures` classifies errors. `breaker` is a circuit breaker for servers that are down.
`rate_limit` limits requests and tokens per minute. `loop` is the background thread in which all of this runs.
"""

from checklist_rewards.backends.openai.backend import OpenAIBackend

__all__ = ["OpenAIBackend"]
