"""The reward server: one judge, many trainers, over HTTP.

`app` has the paths and what they answer, `rows` turns request bodies into samples or errors, `meter` counts,
`connections` limits what clients may hold up.
"""

from checklist_rewards.server.app import DEFAULT_MAX_BODY, build_app

__all__ = ["DEFAULT_MAX_BODY", "build_app"]
