"""Requests as clients make them."""

import json

from tests.rewards.integrations.test_queue import QUESTIONS


def rows(*targets: str) -> dict:
    return {"samples": [{"checklist": QUESTIONS, "target": target, "input": "Say."} for target in targets]}


def openrlhf(*answers: str, label=QUESTIONS) -> dict:
    """A request as OpenRLHF's `_fetch_rewards_via_http` makes it."""
    prompt = "<|im_start|>user\nSay.<|im_end|>\n<|im_start|>assistant\n"
    return {
        "query": [f"{prompt}{answer}<|im_end|>" for answer in answers],
        "prompts": [prompt] * len(answers),
        "labels": [json.dumps({"checklist": label, "input": "Say."})] * len(answers),
    }
