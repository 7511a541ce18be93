"""The reward server: one judge for many trainers, over HTTP.

`app` defines the endpoints, `rows` parses request bodies, `scoring` queues their rows for the judge, `metrics` counts
them, and `connections` limits idle connections.
"""

from checklist_rewards.server.app import build_app

__all__ = ["build_app"]
