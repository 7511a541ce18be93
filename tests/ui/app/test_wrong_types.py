"""JSON of other types than the page sends: refused in one sentence, never an exception."""

import copy
import json

import pytest

from tests.ui.app.conftest import QUESTIONS

ITEM = {"id": "x", "question": "Is it red?", "answer": "yes"}
REQUESTS = {
    "/api/judge": {
        "settings": {"calibration": "map.json", "judge": "judges/a.yaml", "pipeline": "rlcf", "metric": "pass"},
        "checklist": QUESTIONS,
        "target": "a red thing",
        "input": "x",
        "reference": "x",
        "history": "x",
    },
    "/api/generate": {"settings": {"pipeline": "rlcf"}, "input": "x", "candidates": ["a", "b"], "context": "c"},
    "/api/code": {"settings": {"pipeline": "rlcf"}, "checklist": QUESTIONS, "target": "a"},
    "/api/probe": {"settings": {}},
    "/api/example": {"name": "x"},
    "/api/build/stop": {"run": "x"},
    "/api/settings": {"settings": {"judge": "judges/a.yaml"}},
    "/api/jobs": {"file": "rows.jsonl", "output": "o.jsonl", "settings": {}, "columns": {"target": "target"}},
    "/api/jobs/forecast": {"file": "rows.jsonl", "output": "o.jsonl", "settings": {}, "prices": {}},
    "/api/jobs/code": {"file": "rows.jsonl", "output": "o.jsonl", "settings": {}},
    "/api/jobs/pause": {"id": "x"},
    "/api/jobs/resume": {"id": "x", "budget": 1},
    "/api/build/plan": {"pipeline": "checkeval", "settings": {}},
    "/api/build/stage": {"pipeline": "checkeval", "settings": {}, "stage": "x", "source": {}, "draft": {}},
    "/api/build/checklist": {"pipeline": "checkeval", "settings": {}, "source": {}, "draft": {}},
    "/api/build/refine": {"refiner": "tagger", "settings": {}, "checklist": QUESTIONS, "samples": [], "judge": {}},
    "/api/build/preview": {
        "settings": {"threshold": 0.4},
        "checklist": QUESTIONS,
        "samples": [{"target": "a", "input": "b", "answers": [ITEM], "quality": 3}],
    },
    "/api/library/check": {"name": "checklists/a.json", "text": "[]"},
    "/api/library/file": {"name": "checklists/a.json", "text": "[]", "stamp": "x", "checklist": QUESTIONS},
    "/api/library/import": {"file": "rows.jsonl", "format": "auto", "output": "x.jsonl", "may_abstain": False},
    "/api/annotate/answer": {
        **{"file": "scored.jsonl", "annotator": "Ann", "row": "r1", "item": "x", "text": "a red thing"},
        **{"label": "yes", "note": "n", "spans": [{"start": 0, "end": 1}]},
    },
    "/api/annotate/export": {"file": "scored.jsonl", "order": "sample", "seed": 1},
}
WRONG = (5, -1.5, True, "x", "", [], [5], [[]], {}, {"a": 5}, None, "half \ud800")


def places(value, path=()):
    """The paths of all values inside a request."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from places(entry, (*path, key))


def replaced(body, path, wrong):
    if not path:
        return wrong
    body = copy.deepcopy(body)
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = wrong
    return body


def test_every_route_that_takes_json_is_in_the_table(app):
    posts = {route.path for route in app.routes if "POST" in (getattr(route, "methods", None) or ())}
    assert posts == {*REQUESTS, "/api/upload"}
    assert not [route for route in app.routes if {"PUT", "PATCH"} & set(getattr(route, "methods", None) or ())]


@pytest.mark.parametrize("path", REQUESTS)
def test_values_of_other_types_are_refused_in_one_sentence(client, path):
    for place in places(REQUESTS[path]):
        for wrong in WRONG:
            answer = client.post(path, content=json.dumps(replaced(REQUESTS[path], place, wrong)))
            assert answer.status_code < 500, (place, wrong, answer.text)
            if answer.status_code >= 400:
                assert answer.json()["error"].endswith("."), (place, wrong, answer.text)
