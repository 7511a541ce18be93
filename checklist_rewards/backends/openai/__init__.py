"""Client for OpenAI-compatible servers: OpenAI, OpenRouter, `vllm serve`, or your own.

`backend` implements the engine. `wire` creates requests and parses responses and failures. `client` sends a request,
with retries, in a background thread; `limits` says when, and `replicas` to which server. `served` asks what a server
serves.
"""

from checklist_rewards.backends.openai.backend import OpenAIBackend

__all__ = ["OpenAIBackend"]
