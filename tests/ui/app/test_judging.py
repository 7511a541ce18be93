"""Judging in the app: the events, the figures of the scorer, and code that gives the same figures."""

import io
import json
import shlex
import subprocess
from contextlib import redirect_stdout
from urllib.parse import unquote

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as pillow
from typer.testing import CliRunner

from checklist_rewards import Checklist, ChecklistScorer, Sample, Score
from checklist_rewards.backends import Engine
from checklist_rewards.cli import app as cli
from checklist_rewards.cli.options import engine_settings
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.images import image_of, images_in
from checklist_rewards.judges.settings import ScorerConfig
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.ui.code import engine_arguments, loop_commands, public_address, snippets, without_secrets
from checklist_rewards.ui.judging import Judging
from tests.fakes import FakeBackend
from tests.jsonl import read_jsonl
from tests.ui.app.conftest import QUESTIONS, TEXTS, colours, error_of, judging_of
from tests.ui.app.judgeserver import JudgeServer
from tests.ui.files import page_data, write

BODY = {"input": "Name a colour.", "target": "a red thing", "checklist": QUESTIONS}
FAKE = ChecklistScorer(backend=FakeBackend(colours, identity="fake"), store=False)


def events(client, body):
    answer = client.post("/api/judge", json=body)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.headers["x-content-type-options"] == "nosniff"  # a script of a model is data
    return [json.loads(line) for line in answer.text.splitlines()]


def test_the_answers_come_first_and_then_the_score_of_the_scorer(client):
    start, *items, last = events(client, BODY)
    expected = FAKE.score(QUESTIONS, BODY["target"], BODY["input"])
    assert start == {"event": "start", "items": 2}
    score = Score.model_validate(last["score"])
    assert [item["item"]["answer"] for item in items] == ["yes", "no"]
    assert score.primary_score == expected.primary_score and score.aggregation == expected.aggregation
    assert [line.probabilities for line in score.items] == [line.probabilities for line in expected.items]


def test_an_edited_item_alone_is_read_again_and_a_judge_that_breaks_is_unanswered(folder, tmp_path):
    backend = FakeBackend(colours, fails=lambda prefix, tail: "purple" in tail)
    judging = judging_of(folder, backend, store=Store(tmp_path / "store.sqlite"))
    assert list(judging.score(BODY))[-1]["event"] == "score" and len(backend.asked) == 2
    assert list(judging.score({**BODY, "checklist": [*QUESTIONS[:1], "Is it green?"]}))[-1]["event"] == "score"
    assert len(backend.asked) == 3 and "green" in backend.asked[-1][1]
    *_, last = judging.score({**BODY, "checklist": ["Is it purple?"]})
    assert last["score"]["primary_score"] is None
    assert last["score"]["items"][0]["unanswered"].startswith("backend_error")


def test_a_served_judge_answers_one_by_one_with_the_same_score(folder, monkeypatch):
    more = [{"question": "Is it red? (not counted)", "weight": 0}, {"question": "Is it (red?)", "required": True}]
    body = {**BODY, "checklist": [*QUESTIONS, *more]}
    scorer = {"metric": "pass", "threshold": 0.95}
    judging = judging_of(folder, FakeBackend(colours), config={"scorer": scorer})
    *_, at_once = judging.score(body)
    monkeypatch.setattr(Judging, "served", True)
    _, *items, one_by_one = judging.score(body)
    assert sorted(item["index"] for item in items) == [0, 1, 2, 3]
    assert one_by_one["score"] == at_once["score"]
    assert {item["index"]: item["item"] for item in items} == dict(enumerate(at_once["score"]["items"]))


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize(("target", "state"), [("", "empty"), ("<think>a red", "cut_in_thought")])
def test_a_response_without_an_answer_is_not_judged(folder, monkeypatch, served, target, state):
    backend = FakeBackend(colours)
    judging = judging_of(folder, backend)
    monkeypatch.setattr(Judging, "served", served)
    for no_answer, value, answered in ((None, 0.0, 0), ("unscored", None, 0), ("judge", 1.0, 2)):
        *_, last = judging.score({**BODY, "target": target, "settings": {"no_answer": no_answer} if no_answer else {}})
        score = last["score"]
        assert (score["state"], score["answered"], len(backend.asked)) == (state, answered, answered)
        assert answered or score["primary_score"] == value


def test_a_persons_own_text_is_not_cut(judging):
    texts = {"input": "Open with <think>.\n</think>\nName one.", "history": "user: <think>is</think> a tag"}
    sample = judging.sample({**BODY, **texts, "reference": "<think>red</think>Red", "target": "<think>no</think>red"})
    assert (sample.input, sample.history) == (texts["input"], texts["history"])
    assert (sample.reference, sample.target) == ("<think>red</think>Red", "red")


def test_the_answers_of_a_server_arrive_as_it_gives_them(folder):
    """From a server that answers three reads and holds the others until the first answer has arrived."""
    server = JudgeServer(most=3)
    checklist = [f"Is it {word} ({answer})?" for word in ("red", "blue", "fine", "short") for answer in ("yes", "no")]
    judging = judging_of(folder, Engine("valid", "openai", server.url))
    assert judging.served
    events = []
    for event in judging.score({**BODY, "checklist": checklist}):
        events.append(event["event"])
        if event["event"] == "item":
            server.again()
    expected = ChecklistScorer("valid", base_url=server.url, store=False).score(
        checklist, BODY["target"], BODY["input"]
    )
    server.kill()
    assert event["score"] == expected.model_dump(mode="json")
    assert "item" in events[: events.index("score")]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"checklist": []}, "the checklist is empty"),
        ({"target": 3}, "target must be a text, got int."),
        ({"settings": {"pipeline": "none.yaml"}}, "not found in the project folder"),
        ({"settings": {"temperature": 1}}, "'temperature' is not a setting"),
        ({"settings": 3}, "settings must be an object"),
        ({"checklist": [{"question": "Does it run?", "check": {"type": "none"}}]}, "check"),
    ],
)
def test_what_cannot_be_scored_is_one_event_with_a_sentence(client, change, sentence):
    [event] = events(client, BODY | change)
    assert event["event"] == "error" and sentence in event["message"]


def test_a_checklist_is_written_by_a_pipeline(client):
    found = client.post("/api/generate", json={"input": "Name a colour.", "settings": {"pipeline": "tick"}}).json()
    assert found["items"] == ["Is it red?", "Is it blue?", "Is it short?"]
    for body, sentence in (
        ({"input": " "}, "blank"),
        ({"input": "x", "settings": {"pipeline": "checkeval"}}, "writes one checklist for many inputs"),
    ):
        assert sentence in error_of(client.post("/api/generate", json=body))


def test_no_key_reaches_the_page(folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567890")
    address = "http://me:hunter2@localhost:8000/v1?key=5"
    engine = Engine("org/judge", "openai", address, {"api_key": "sk-abc", "concurrency": 4})
    judging = judging_of(folder, engine)
    sent = json.dumps([judging.choices(), snippets(judging.config, engine, judging.sample(BODY))])
    assert "hunter2" not in sent and "sk-" not in sent and "concurrency" in sent
    assert public_address(address) == "http://localhost:8000/v1"
    assert without_secrets("bad key sk-1234567890 at http://a:b@c/") == "bad key *** at http://c/"


NOT_SECRET = """
    tokenizer tokenizer_mode skip_tokenizer_init max_num_batched_tokens eos_token keys_per_row keyed monkey headersize
    secretary concurrency kv_cache_dtype Authorizations author keyboard stop_token_ids spec_tokens tokens_only
""".split()
SECRET = """
    api_key key apiKey apikey token use_auth_token password headers extra_headers proxy-authorization client_secret
    x-api-key aws_secret_access_key credentials api_keys headers_json api_key_2 access_token_v2 password1
    private_key_pem auth bearer cookie passwd HFToken
""".split()


def test_only_settings_whose_name_is_that_of_a_secret_are_left_out():
    for name in NOT_SECRET + SECRET:
        settings = {name: "value", "nested": {name: "value", "a": [{name: "value"}]}}
        engine = Engine("org/judge", "vllm", settings=settings)
        kept = {name: "value"} if name in NOT_SECRET else {}
        assert engine_arguments(engine)["engine_args"] == {**kept, "nested": {**kept, "a": [kept]}}
        assert engine_arguments(engine, public=False)["engine_args"] == settings


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(NOT_SECRET), inside, max_size=3),
    max_leaves=5,
)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(NOT_SECRET), VALUES, max_size=4), st.sampled_from(["auto", "vllm"]))
def test_the_exported_code_has_the_settings_that_were_exported(engine, backend):
    chosen = {"threshold": 0.1 + 0.2, "metric": "pass", "abstention": "fail", "no_answer": "judge", "scale": 5}
    config = PipelineConfig.parse({"scorer": {**chosen, "min_answered": ScorerConfig().min_answered}})
    sample = Sample(Checklist.parse(["Is it red?"]), "a red thing", "Name a colour.")
    found = snippets(config, Engine("org/judge", backend, settings=engine), sample, "store.sqlite")
    [line] = [line for line in found["python"].splitlines() if line.startswith("scorer = ")]
    seen = {}
    exec(line, {"ChecklistScorer": lambda model, **rest: seen.update(rest, model=model)})
    expected = {**chosen, "model": "org/judge", "store": "store.sqlite"} | ({"engine_args": engine} if engine else {})
    assert seen == expected | ({} if backend == "auto" else {"backend": backend}), "defaults are omitted"
    assert PipelineConfig.parse(yaml.safe_load(found["yaml"])) == config
    options = [word.partition("=") for word in shlex.split(found["cli"].rpartition("\nEND\n")[2])]
    assert engine_settings("--engine-args", [value for name, _, value in options if name == "--engine-args"]) == engine
    assert [value for name, _, value in options if name == "--store"] == ["store.sqlite"]


SETTINGS = [
    {"metric": "pass", "threshold": 0.3, "min_answered": 0.25, "abstention": "partial", "no_answer": "unscored"},
    {"judge": "judges/panel.yaml", "metric": "weighted"},
    {"pipeline": "rocketeval"},
]


def printed_by(script: str) -> dict:
    """The last line that a script prints, as JSON. It runs in this process, which has the model."""
    with redirect_stdout(io.StringIO()) as out:
        exec(script, {"__name__": "__main__"})
    return json.loads(out.getvalue().splitlines()[-1])


def arguments_of(command: str) -> list[str]:
    """What a shell passes to `checklist-rewards`, after it has written the files."""
    noted = "checklist-rewards() { printf '%s\\0' \"$@\"; }\n"
    ran = subprocess.run(["bash", "-c", noted + command], capture_output=True, text=True, check=True)
    return ran.stdout.split("\0")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_python_command_and_yaml_give_the_figures_of_the_page(folder, tmp_path, monkeypatch, settings):
    (folder / "judges" / "panel.yaml").write_text("panel: {}\njudges: [pocket, {model: pocket, mass_floor: 0.2}]\n")
    engine = Engine("pocket", "transformers")
    judging = judging_of(folder, engine)
    body = {
        "input": "Write it's \"name\" \\ 'quoted'.\nTwice, in ünïcode.",
        "target": "<think>hm</think>Who's there?\nEND\n",
        "checklist": [
            "Does the response end with a question mark?",
            {"question": 'Does the response mention "it\'s"?', "weight": -0.3, "category": "form"},
            {"question": "Is it short?", "required": True},
        ],
        "settings": settings,
    }
    *_, last = judging.score(body)
    score = last["score"]
    config = judging.config_of(settings)
    found = snippets(config, judging.engine_of(config), judging.sample(body))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # a store without answers
    monkeypatch.chdir(tmp_path)
    assert printed_by(found["python"] + "\nprint(score.model_dump_json())\n") == score
    arguments = arguments_of(found["cli"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another cache"))
    ran = CliRunner().invoke(cli, arguments)
    assert ran.exit_code == 0, ran.output
    [row] = map(json.loads, (tmp_path / "scored.jsonl").read_text().splitlines())
    assert row["checklist_score"] == score
    assert (tmp_path / "judge.yaml").read_text() == found["yaml"]


def test_the_judge_tells_its_health_and_what_the_probe_found(client):
    found = client.get("/api/health").json()
    assert found == {"state": "loaded", "probe": None, "can_probe": True}
    probed = client.post("/api/probe", json={}).json()
    assert probed["asked"] == 12 and "cannot tell yes from no" in probed["refusal"], "it knows only colours"
    assert client.get("/api/health").json()["probe"] == probed


def test_a_writer_that_cannot_write_says_so_and_another_one_is_chosen(folder):
    judging = judging_of(folder, FakeBackend(colours), Engine("judge", "remote", "http://127.0.0.1:9"))
    assert "neither writes" in judging.choices()["cannot_write"]
    assert judging.choices()["writers"] == ["pocket", "english-writer", "smollm2"]
    with pytest.raises(SampleError, match="allowed: pocket, english-writer, smollm2"):
        judging.write({"input": "Write about tea.", "writer": "org/any"})
    assert judging.write({"input": "Write exactly two sentences about the rain.", "writer": "pocket"}).items


def row_of(client, file, id):
    return client.get("/api/row", params={"file": file, "id": id})


def test_a_row_of_a_report_opens_in_judge_and_one_with_an_image_is_not_judged_without_it(client, folder):
    row = row_of(client, "scored.jsonl", "r2").json()
    assert (row["input"], row["target"], row["checklist"]) == ("Name a colour.", TEXTS[1], QUESTIONS)
    assert row["settings"] == {} and row["scored"]["judges"] == ["pocket"] and not row["scored"]["same"]
    assert "has no row 'r9'" in error_of(row_of(client, "scored.jsonl", "r9"))
    pillow.new("RGB", (8, 8), "red").save(folder / "red.png")
    first, second, *others = read_jsonl(folder / "scored.jsonl")
    write(folder / "weighted.jsonl", [first | {"checklist": [QUESTIONS[0], "Is it blue?"]}])  # by `score --weights`
    assert row_of(client, "weighted.jsonl", "r1").json()["checklist"] == QUESTIONS
    write(folder / "seen.jsonl", [first | {"image": "red.png"}, second | {"image": "../red.png"}, *others])
    row = row_of(client, "seen.jsonl", "r1").json()
    assert row["input"] == "[image]Name a colour." and row["images"][0].startswith("data:image/jpeg;base64,")
    assert "may not be read" in row_of(client, "seen.jsonl", "r2").json()["images"][0]
    assert not {"images", "of"} & row_of(client, "seen.jsonl", "r4").json().keys()
    answer = client.post("/api/judge", json={name: row[name] for name in ("input", "target", "checklist")}).text
    assert "[image] stands for an image of a row" in answer and '"score"' not in answer


def judged(client, body) -> str:
    """The score of a response, or the error."""
    answer = client.post("/api/judge", json={"target": "Red.", "checklist": ["Is it red?"], **body})
    last = json.loads(answer.text.splitlines()[-1])
    return last["score"]["items"][0]["answer"] if "score" in last else last.get("message", last.get("error"))


def test_a_judge_that_sees_gets_the_images_of_the_row_and_another_one_refuses(client, judging, folder):
    for name in ("red", "blue"):
        pillow.new("RGB", (8, 8), name).save(folder / f"{name}.png")
    seen = []

    def rule(prefix, tail):
        seen.append([image.pillow.getpixel((0, 0)) for image in images_in(prefix)])
        return 0.9 if (255, 0, 0) in seen[-1] else 0.1

    parts = [{"type": "image"}, {"type": "text", "text": " or "}, {"type": "image"}, {"type": "text", "text": "?"}]
    rows = [{"prompt": "What?", "candidates": ["Red.", "Blue."], "image": name} for name in ("red.png", "blue.png")]
    images = ["blue.png", "red.png"]
    rows += [{**rows[0], "prompt": [{"role": "user", "content": parts}], "image": None, "images": images}]
    rows += [{**rows[0], "image": name} for name in ("gone.png", "../out.png")]
    write(folder / "seen.jsonl", rows)
    opened = [client.get("/api/candidates", params={"file": "seen.jsonl", "row": n}).json() for n in range(1, 6)]
    bodies = [{name: found[name] for name in ("input", "of")} for found in opened]
    assert [body["input"] for body in bodies[:3]] == ["[image]What?", "[image]What?", "[image] or [image]?"]
    refusal = "the response: the input has an image, but the judge 'fake' reads text only"
    assert judged(client, bodies[0]).startswith(refusal) and not judging.judge.backend.asked
    judging.judge.backend.rule, judging.judge.backend.sees = rule, True
    assert [judged(client, body) for body in bodies[:3]] == ["yes", "no", "yes"]
    red, blue = (255, 0, 0), (0, 0, 255)
    assert seen == [[red], [blue], [blue, red]]
    assert judged(client, {**bodies[0], "input": "What?"}) == "no" and seen[-1] == [], "the text alone"
    assert "seen.jsonl, line 3 has 2 images for it" in judged(client, {**bodies[2], "input": "[image]?"})
    assert "the response has [image] 1 times" in judged(client, {**bodies[0], "target": "[image] is red."})
    assert "seen.jsonl, line 4: '" in judged(client, bodies[3])
    assert "may not be read" in judged(client, bodies[4])
    for file, number in (("../x.jsonl", 1), ("seen.jsonl", 9), ("seen.jsonl", [1]), (None, None)):
        assert judged(client, {**bodies[0], "of": {"file": file, "row": number, "text": "x"}}).endswith(".")
    code = client.post("/api/code", json={**bodies[0], "target": "Red.", "checklist": QUESTIONS})
    assert "score its file in Batch" in code.json()["error"]
    generate, prompts = judging.writer.backend.generate, []
    judging.writer.backend.generate = lambda chats, *more: prompts.append(chats) or generate(chats, *more)
    assert client.post("/api/generate", json={**bodies[0], "settings": {"pipeline": "tick"}}).json()["items"]
    assert f"{image_of(folder / 'red.png').mark}What?" in prompts[0][0][-1]["content"]
    rows[0]["image"] = "blue.png"
    write(folder / "seen.jsonl", rows)
    assert "seen.jsonl, line 1 has changed since it was opened" in judged(client, bodies[0])
    assert judged(client, {**bodies[0], "input": "What?"}) == "no", "the text alone"


def test_a_request_reads_no_image_file(client, folder):
    pillow.new("RGB", (8, 8), "red").save(folder / "red.png")
    parts = [{"type": "image", "path": str(folder / "red.png")}, {"type": "text", "text": "What?"}]
    asks, answers = ([{"role": role, "content": parts}] for role in ("user", "assistant"))
    body = {"input": "What?", "target": "Red.", "checklist": QUESTIONS}
    for path, change in (
        ("judge", {"input": asks}),
        ("judge", {"input": json.dumps(asks)}),
        ("judge", {"target": answers}),
        ("generate", {"input": asks}),
    ):
        assert "must be a data URL" in client.post(f"/api/{path}", json=body | change).text


def test_a_row_of_another_judge_names_it_and_uses_it_if_the_project_has_it(client, folder):
    rows = read_jsonl(folder / "scored.jsonl")
    for row in rows:
        row["checklist_score"]["aggregation"]["threshold"] = 0.9
        for line in row["checklist_score"]["items"]:
            line["judge"] = "english-encoder"
    write(folder / "encoder.jsonl", rows)
    row = row_of(client, "encoder.jsonl", "r2").json()
    assert row["scored"]["judges"] == ["english-encoder"] and not row["scored"]["same"]
    assert row["settings"] == {"threshold": 0.9}
    (folder / "judges" / "broken.yaml").write_text("modell: x")
    (folder / "judges" / "encoder.yaml").write_text("model: english-encoder")
    row = row_of(client, "encoder.jsonl", "r2").json()
    assert row["settings"] == {"threshold": 0.9, "judge": "judges/encoder.yaml"}
    assert row["scored"]["same"] and row["scored"]["judge"] == "judges/encoder.yaml"


def test_every_page_gets_the_judge_and_the_threshold_and_what_the_judge_is_worth(client, folder):
    started = {"judge": "fake", "models": ["fake"], "threshold": 0.6, "caveats": [], "toy": False, "files": []}
    assert client.get("/api/project").json()["judge"] == started
    (folder / "judges" / "two.yaml").write_text("panel: {rule: mean}\njudges: [{model: pocket}, {model: org/other}]")
    chosen = {"settings": {"judge": "judges/two.yaml", "threshold": 0.8}}
    found = client.post("/api/settings", json=chosen).json()
    assert (found["judge"], found["models"]) == ("judges/two.yaml", ["pocket", "org/other"])
    assert found["threshold"] == 0.8
    [sentence] = found["caveats"]
    assert "its answers about other texts are meaningless" in sentence and found["toy"]


def test_a_model_of_a_server_is_no_packaged_model_whatever_its_name(folder):
    for engine, is_packaged in (
        (Engine("english", base_url="http://127.0.0.1:1/v1"), False),
        (Engine("english", FakeBackend(colours)), False),
        (Engine("english"), True),
    ):
        described = judging_of(folder, engine).described({})
        assert described["models"] == ["english"] and not described["toy"]
        assert [one.startswith("english ") for one in described["caveats"]] == [True] * is_packaged


def test_a_file_of_judges_that_is_broken_is_the_caveat_of_the_app(folder):
    path = folder / "judges" / "mine.yaml"
    path.write_text("judges: [{model: org/one}, {model: org/two}]\npanel: {rule: mean}")
    judging = judging_of(folder, FakeBackend(colours), config={"scorer": {"judge": str(path)}})
    told = judging.of_the_app()
    assert (told["judge"], told["models"]) == ("judges/mine.yaml", ["org/one", "org/two"]) and told["caveats"] == []
    path.write_text("modell: x")
    broken = judging.of_the_app()
    assert (broken["judge"], broken["models"], broken["threshold"]) == ("judges/mine.yaml", [], None)
    assert "modell" in broken["caveats"][0] and broken.keys() == told.keys()


def test_a_score_says_which_version_of_the_file_of_judges_gave_it(client, folder):
    path = folder / "judges" / "mine.yaml"
    path.write_text("{model: pocket, backend: transformers}")
    settings = {"judge": "judges/mine.yaml"}
    by = events(client, {**BODY, "settings": settings})[-1]["by"]
    assert by == client.post("/api/settings", json={"settings": settings}).json() and len(by["files"]) == 1
    path.write_text("{model: pocket, backend: transformers}  # edited")
    assert client.post("/api/settings", json={"settings": settings}).json()["files"] != by["files"]


@pytest.mark.parametrize(
    ("judges", "option", "count"),
    [(["fake"], "--model=fake", 5), (["org/other"], "--model=org/other", 5), (["a", "b"], None, 3)],
)
def test_the_commands_for_labels_name_the_judge_of_the_file(judging, judges, option, count):
    commands = loop_commands("scored.jsonl", "labels/scored.jsonl", judges, judging, {})
    assert len(commands) == count
    assert [option in command for command in commands if " score " in command] == [True] * (count - 3)
    [first, *_] = loop_commands("rows.jsonl", "labels/rows.jsonl", None, judging, {})
    assert first == "checklist-rewards score rows.jsonl -o scored.jsonl --model=fake"
    keys = {"input_key": ["ask"], "target_key": "reply"}  # as a job named them
    commands = loop_commands("scored.jsonl", "labels/scored.jsonl", judges, judging, keys)
    assert ["--target-key=reply" in command for command in commands] == [True] * (count - 1) + [False]


def test_the_example_is_copied_and_files_that_are_there_are_kept(client, folder):
    made = client.post("/api/example", json={}).json()
    assert made["open"] in made["files"] and all((folder / name).is_file() for name in made["files"])
    (folder / "example" / "checklist.json").write_text("[]")
    client.post("/api/example", json={})
    assert (folder / "example" / "checklist.json").read_text() == "[]"
    files = {file["name"]: file for file in client.get("/api/project").json()["files"]}
    scored, checklist = files["example/scored.jsonl"], files["checklists/example.json"]
    assert [shown for shown, _ in scored["actions"]] == ["Report", "Trust", "Annotate", "Score again"]
    assert (checklist["shown"], [shown for shown, _ in checklist["actions"]]) == ("checklist", ["Judge", "Edit"])
    followed = [["Report of its run", "/report?file=example%2Frewards.jsonl#/0/monitor"]]
    assert files["example/monitor.jsonl"]["actions"] == followed
    head = client.get("/api/report", params={"file": "example/rewards.jsonl"}).json()
    assert head["monitors"][0]["alarms"] and head["files"][0]["training"]["steps"] == list(range(30))
    trusted = client.get("/api/report", params={"file": "example/scored.jsonl", "labels": "labels"}).json()
    assert trusted["trust"]["scored.jsonl"]["comparison"]


@pytest.mark.parametrize(("name", "labels"), [("it's a «log».jsonl", "file"), ("-o.jsonl", "column")])
def test_the_copied_command_writes_the_report_that_is_shown(client, folder, monkeypatch, name, labels):
    client.post("/api/example", json={})
    (folder / "example" / "scored.jsonl").rename(folder / "example" / name)
    if labels == "file":
        rows = read_jsonl(folder / "example" / name)
        write(folder / "labels" / "example" / name, [{key: row[key] for key in ("id", "labels")} for row in rows])
    asked = {"file": f"example/{name}"} | ({"labels": "labels"} if labels == "column" else {})
    shown = client.get("/api/report", params=asked)
    command = shlex.split(unquote(shown.headers["x-command"]))
    assert command[:2] == ["checklist-rewards", "report"]
    monkeypatch.chdir(folder)
    ran = CliRunner().invoke(cli, [*command[1:], "--bootstrap", "200"])
    assert ran.exit_code == 0, ran.output
    trust = json.dumps(shown.json()["trust"]).replace(f"{folder}/", "")
    assert page_data(folder / "report.html")["trust"] == json.loads(trust) != {}
