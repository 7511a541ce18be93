"""The app answers one browser on this machine, and reads only its project folder."""

import json
import os

import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.ui.app import VIEWS
from checklist_rewards.ui.guard import HEADER, MAX_BODY, POLICY
from checklist_rewards.ui.project import OutsideError, Project
from tests.ui.app.conftest import TOKEN

APIS = """
    project choices report?file=scored.jsonl annotate/queue?file=scored.jsonl&annotator=ann jobs
    jobs/preview?file=rows.jsonl download?file=rows.jsonl library live upload?name=a.jsonl
""".split()
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


def test_without_the_token_every_request_is_refused(stranger):
    for path in ("/", *(f"/{view}" for view in VIEWS), "/static/app.js", *(f"/api/{api}" for api in APIS)):
        answer = stranger.get(path)
        assert answer.status_code == 401 and "checklist-rewards ui" in answer.text, path
        assert stranger.get(path, headers={HEADER: "wrong"}).status_code == 401
        assert {stranger.request(method, path).status_code for method in METHODS} == {401}
    assert stranger.get("/", params={"token": "wröng"}).status_code == 401


def test_the_printed_url_opens_the_page_and_its_cookie_opens_no_data(stranger):
    assert stranger.get("/", params={"token": TOKEN}).status_code == 200
    [cookie] = stranger.cookies.jar
    assert TOKEN not in cookie.value and cookie.has_nonstandard_attr("HttpOnly")
    assert stranger.get("/static/app.js").status_code == stranger.get("/annotate").status_code == 200
    assert stranger.get("/api/project").status_code == 401
    assert stranger.get("/api/project", headers={HEADER: TOKEN}).status_code == 200


OTHER_HOSTS = """
    evil.example 127.0.0.1.evil.example:8091 192.168.0.2:8091 evil.example@127.0.0.1 localhost:8091/ [::1 127.0.0.1:x
    127.0.0.1:8091,evil.example
""".split()


def test_this_machine_alone_is_answered(client):
    for host in ("127.0.0.1", "localhost:8091", "LOCALHOST", "[::1]:8091"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert client.get("/api/project", headers=headers).status_code == 200
    for host in (*OTHER_HOSTS, ""):
        assert client.get("/api/project", headers={"Host": host}).status_code == 403, host


def test_other_origins_are_refused_and_get_no_cors_headers(client):
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9000", "https://127.0.0.1:8091"):
        answer = client.get("/api/project", headers={"Origin": origin})
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    asked = {"Origin": "null", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": HEADER}
    answer = client.options("/api/judge", headers=asked)
    assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    own = client.get("/api/project", headers={"Origin": "http://127.0.0.1:8091"})
    assert own.status_code == 200 and "access-control-allow-origin" not in own.headers
    assert client.get("/api/project", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_every_response_has_the_security_headers(client, stranger):
    for answer in (client.get("/api/project"), stranger.get("/"), stranger.get("/", params={"token": TOKEN})):
        assert answer.headers["content-security-policy"] == POLICY and "unsafe" not in POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_body_that_is_too_large_is_refused(client):
    answer = client.post("/api/judge", content=b'{"target": "' + b"x" * MAX_BODY + b'"}')
    assert answer.status_code == 413 and "16,777,216 bytes" in answer.json()["error"]


@pytest.mark.parametrize("body", [b"[]", b"{", b"[" * 100_000], ids=["list", "cut", "nested"])
def test_a_body_that_is_no_object_is_refused(client, body):
    answer = client.post("/api/annotate/answer", content=body)
    assert answer.status_code == 400 and "JSON" in answer.json()["error"]


OUTSIDE = [
    *"../secret.jsonl a/../../secret.jsonl /etc/passwd .. .env .git/config.json C:/secret.jsonl".split(),
    *("./scored.jsonl", "a//b.jsonl", "secret.py", "a\\..\\secret.jsonl", "a\0.jsonl", "", "a" * 300 + ".jsonl"),
]


def test_no_name_leaves_the_project(folder, client):
    (folder.parent / "secret.jsonl").write_text('{"secret": 1}\n')
    for name in OUTSIDE:
        with pytest.raises(OutsideError):
            Project.at(folder).path(name)
        answer = client.get("/api/report", params={"file": name})
        assert answer.status_code == 403 and "secret" not in answer.json()["error"].replace(repr(name), "")
    asked = {"settings": {"calibration": "../secret.jsonl"}, "checklist": ["Is it red?"], "target": "red"}
    assert "of a file of the project folder" in client.post("/api/judge", json=asked).text


def test_no_symbolic_link_leaves_the_project(folder, client):
    secret = folder.parent / "secret.jsonl"
    secret.write_text('{"secret": 1}\n')
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "up").symlink_to(folder.parent)
    (folder / "inside.jsonl").symlink_to(folder / "scored.jsonl")
    row = {"step": 1, "prompt": "x", "completion": "a", "reward": 0, "score": None}
    (folder / "log.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "log.rank1.jsonl").symlink_to(secret)  # would be read as a part of log.jsonl
    for name in ("link.jsonl", "up/secret.jsonl", "log.jsonl"):
        assert client.get("/api/report", params={"file": name}).status_code == 403
    names = [file["name"] for file in client.get("/api/project").json()["files"]]
    assert names == ["inside.jsonl", "log.jsonl", "rows.jsonl", "scored.jsonl"]
    assert client.get("/api/report", params={"file": "inside.jsonl"}).status_code == 200
    os.symlink(folder.parent, folder / "annotations")
    body = {"file": "scored.jsonl", "annotator": "ann"}
    assert client.post("/api/annotate/answer", json={**body, "row": "r1", "item": "x"}).status_code == 403


ROUTES = [
    ("get", "report?file={}"),
    ("get", "candidates?file={}&row=1"),
    ("get", "row?file={}&id=r1"),
    ("get", "annotate/queue?file={}&annotator=ann"),
    ("get", "annotate/queue?file=scored.jsonl&annotator=ann&order=differ&other={}"),
    ("get", "annotate/task?file={}&annotator=ann&place=0"),
    ("get", "jobs/preview?file={}"),
    ("get", "download?file={}"),
    ("get", "library/file?name={}"),
    ("get", "live?file={}"),
    ("post", "annotate/answer", "file"),
    ("post", "annotate/export", "file"),
    ("post", "library/file", "name"),
    ("post", "library/import", "file"),
    ("post", "jobs", "file"),
    ("post", "jobs/forecast", "file"),
    ("post", "jobs/code", "output"),
]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route[0]} {route[1]}")
def test_no_route_reads_or_writes_outside_of_the_project(folder, client, route):
    secret = folder.parent / "secret.jsonl"
    secret.write_text('{"secret": "hidden text"}\n')
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "checklists").mkdir()
    (folder / "checklists" / "link.json").symlink_to(secret)
    before = {path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()}
    behind = ("link.jsonl", "checklists/link.json", "checklists/../../secret.jsonl")
    for name in ("../secret.jsonl", str(secret), *behind):
        if route[0] == "get":
            answer = client.get("/api/" + route[1].format(name))
        else:
            valid = {"file": "scored.jsonl", "output": "out.jsonl", "annotator": "ann", "text": "[]", "row": "r1"}
            answer = client.post(f"/api/{route[1]}", json={**valid, route[2]: name})
        assert answer.status_code in (400, 403, 404), (name, answer.text)
        assert "hidden text" not in answer.text
    after = {
        path: path.read_bytes() for path in folder.parent.rglob("*") if path.is_file() and ".run" not in path.parts
    }
    assert after == before


def test_a_name_or_an_error_with_html_stays_a_text_in_json(folder, client):
    evil = "<img src=x onerror=alert(1)>.jsonl"
    (folder / evil).write_text("not json <script>\n")
    for answer in (client.get("/api/project"), client.get("/api/report", params={"file": evil})):
        assert answer.headers["content-type"] == "application/json" and "img src" in answer.text
    downloaded = client.get("/api/download", params={"file": evil})
    assert downloaded.headers["content-type"] == "application/octet-stream"
    assert downloaded.headers["content-disposition"].startswith("attachment")


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(SampleError, match="is not a folder"):
        Project.at(tmp_path / "none")


def test_static_names_are_those_of_the_page(client):
    client.get("/", params={"token": TOKEN})
    for name in ("..%2f..%2fapp.py", "app.html", "none.js"):
        assert client.get(f"/static/{name}").status_code == 404
    assert client.get("/static/app.js").headers["content-type"].startswith("text/javascript")
