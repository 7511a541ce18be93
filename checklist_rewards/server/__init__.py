"""The reward server: one judge for many trainers, over HTTP.

`app` defines the endpoints, `rows` parses request bodies, `metrics` counts requests, and `connections` limits idle
connections.
"""

from checklist_rewards.server.app import DEFAULT_MAX_BODY, build_app

__all__ = ["DEFAULT_MAX_BODY", "build_app"]
