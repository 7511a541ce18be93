"""Images in rows: every command that asks a model names a row with an image that the model cannot take, first."""

import json
from pathlib import Path

import pytest
from datasets import Dataset

from checklist_rewards.backends import Reply
from checklist_rewards.files.rows import read_rows
from checklist_rewards.images import image_of, images_in
from checklist_rewards.rows import Columns
from tests.evaluation.files import scored_file
from tests.jsonl import read_jsonl, write_jsonl
from tests.test_images import PILLOWS, RED, Seeing

CHECKLIST = ["Is it red?", "Is it big?"]
ROW = {"prompt": "What is this?", "target": "A red square.", "checklist": CHECKLIST, "label": 1}
ROW |= {"candidates": ["A red square.", "A dog."], "said": [0.9, 0.2], "labels": [1, 0]}
COMMANDS = {
    "score": "score rows.jsonl -o out.jsonl",
    "score, one checklist": "score rows.jsonl -o out.jsonl --checklist list.json",
    "generate": "generate rows.jsonl -o out.jsonl --input-key prompt",
    "run": "run rows.jsonl -o out.jsonl",
    "run, one checklist": "run rows.jsonl -o out.jsonl --checklist list.json",
    "rerank": "rerank rows.jsonl -o out.jsonl",
    "rerank, sampled": "rerank rows.jsonl -o out.jsonl --policy.model pocket",
    "pairs": "pairs rows.jsonl -o out.jsonl",
    "refine": "refine rows.jsonl -o out.jsonl",
    "attack": "attack rows.jsonl -o out.json",
    "inspect, sampled": "inspect rows.jsonl --policy.model pocket",
    "inspect --meta": "inspect rows.jsonl --meta",
    "inspect --paraphrases": "inspect rows.jsonl --paraphrases 1",
    "replay": "replay rows.jsonl -o out.jsonl",
    "improve": "improve list.json --data rows.jsonl --label-key label -o out.json",
    "calibrate": "calibrate rows.jsonl -o out.json --contextual",
    "score --dry-run": "score rows.jsonl -o out.jsonl --dry-run",
}


def write_rows(judge="pocket", **row):
    """Two rows that a judge has scored; the second one with these columns."""
    Path("list.json").write_text(json.dumps(CHECKLIST))
    PILLOWS["red"].save("red.png")
    other = {"checklist": ["Is it a square?", *CHECKLIST], "said": [0.5] * 3, "labels": [0, 1, 1]}
    scored_file("rows.jsonl", ROW, ROW | other | row, judge=judge)


ADDRESS = "https://example.org/red.png"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_row_with_an_image_that_the_model_cannot_take_is_named_before_it_is_loaded(run, vlm, no_engine, command):
    write_rows(image="red.png")
    words = ["rows.jsonl, line 2: the ", "has an image, but the ", "--images ignore"]
    words += ["'pocket' reads text only; use a vision-language model"]
    run(f"{command} --model pocket --no-store", refused=words)
    write_rows(vlm, image=ADDRESS)
    words = ["rows.jsonl, line 2", f"has the image {ADDRESS}, an address, which is not fetched"]
    run(f"{command} --no-store --model {vlm}".replace("pocket", vlm), refused=words)


def test_what_is_no_image_is_named_before_a_model_is_loaded(run, vlm, no_engine):
    for row, message in (({"image": "gone.png"}, "'gone.png' cannot be read"), ({"images": [None]}, "PIL image")):
        write_rows(vlm, **row)
        run(f"{COMMANDS['score']} --no-store --model {vlm}", refused=["rows.jsonl, line 2", message])


def test_a_server_fetches_images(run, no_engine):
    write_rows(image=ADDRESS)
    run("score rows.jsonl -o out.jsonl --dry-run --model m --base-url http://127.0.0.1:9/v1 --no-store")
    remote = "--backend remote --base-url http://127.0.0.1:9 --no-store"
    run(f"score rows.jsonl -o out.jsonl {remote}", refused=f"line 2: the input has the image {ADDRESS}")


class Looking(Seeing):
    """Also keeps the images of the prompts that it continues."""

    def generate(self, prompts, sampling, arrived=None):
        self.continued = [[image.key for message in p for image in images_in(message["content"])] for p in prompts]
        return [[Reply(f"A square, number {n}.", "stop") for n in range(sampling.n)] for _ in prompts]


@pytest.fixture
def looking(engine, vlm):
    """The engine that stands where the model `vlm` would be loaded."""
    return engine(backend=Looking())


def test_rerank_samples_and_ranks_with_the_images_of_a_row(run, looking):
    write_rows(image="red.png")
    run(f"{COMMANDS['rerank, sampled']} --n 2 --model vlm --no-store".replace("pocket", "vlm"))
    assert looking.continued == [[], [RED.key]]
    assert sorted(looking.shown) == [[]] * 4 + [[RED.key]] * 6  # items of each candidate
    texts = ["A square, number 0.", "A square, number 1."]
    assert [row["candidates"] for row in read_jsonl("out.jsonl")] == [texts] * 2


MESSAGES = [{"role": "user", "content": [{"type": "image", "image": "red.png"}, {"type": "text", "text": "What?"}]}]


@pytest.mark.parametrize(
    ("row", "form"),
    [({"image": "red.png"}, "dpo"), ({"prompt": MESSAGES}, "kto"), ({"input": "?", "image": "red.png"}, "kto")],
)
def test_pairs_keep_the_images_of_their_prompts(run, looking, row, form):
    """Also from a file in which `rerank` has written the scores."""
    PILLOWS["red"].save("red.png")
    Dataset.from_list([ROW | row]).to_parquet("rows.parquet")
    keys = [word for name in ("prompt", "input") if name in ROW | row for word in ("--input-key", name)]
    run("rerank rows.parquet -o ranked.parquet", *keys, "--model", "vlm", "--no-store", "--ties", "first")
    run("pairs ranked.parquet -o pairs.jsonl", *keys, "--form", form, "--ties", "keep")
    pair = read_jsonl("pairs.jsonl")[0]
    assert pair.get("image", "red.png") == "red.png" and ("image" in pair) == ("image" in row)
    assert pair["prompt"] == {"image": ROW["prompt"], "input": "What is this?\n\n?"}.get([*row][0], pair["prompt"])
    assert ("image" in row) or pair["prompt"][0]["content"][0]["image"] == "red.png"


@pytest.mark.parametrize("options", ["--policy.model vlm --n 2 --scored scored.jsonl", "--meta", "--paraphrases 1"])
def test_inspect_samples_scores_and_reviews_with_the_images_of_a_row(run, looking, options):
    write_rows(image="red.png")
    done = run(f"inspect rows.jsonl {options} --model vlm --no-store")
    assert [RED.key] in looking.shown, done.output
    if "--scored" in options:
        assert sorted(looking.continued) == [[], [RED.key]]
        assert {row["target"][:-2] for row in read_jsonl("scored.jsonl")} == {"A square, number "}


MOVED = {
    "score": "score data/rows.jsonl -o {out}",
    "generate": "generate data/rows.jsonl -o {out} --input-key prompt",
    "run": "run data/rows.jsonl -o {out}",
    "rerank": "rerank data/rows.jsonl -o {out}",
    "pairs": "pairs data/rows.jsonl -o {out} --ties keep",
    "refine": "refine data/rows.jsonl -o {out}",
    "replay": "replay data/rows.jsonl -o {out}",
    "inspect, sampled": "inspect data/rows.jsonl --policy.model vlm --n 2 --scored {out}",
    "import": "checklists import data/rows.jsonl -o {out} --checklist-key checklist",
    "export": "checklists export data/rows.jsonl -o {out} --to verl",
}
ADDRESSED = {"type": "image_url", "image_url": {"url": "images/red.png"}}
SHAPES = {
    "image": {"image": "images/red.png"},
    "images": {"images": ["images/red.png"]},
    "part": {"prompt": json.loads(json.dumps(MESSAGES).replace("red.png", "images/red.png"))},
    "address": {"prompt": [{"role": "user", "content": [ADDRESSED]}]},
    "absolute": {"image": "{here}/data/images/red.png"},
}


@pytest.mark.parametrize(
    ("command", "extension"), [*((command, "jsonl") for command in MOVED), ("score", "csv"), ("pairs", "parquet")]
)
def test_images_of_rows_that_are_written_to_another_folder_open_there(run, looking, command, extension):
    """Every command that copies rows, and, in `score`, every shape of a path."""
    for folder in ("data/images", "elsewhere"):
        Path(folder).mkdir(parents=True)
    Path("out").symlink_to("elsewhere", target_is_directory=True)
    PILLOWS["red"].save("data/images/red.png")
    for name, shape in SHAPES.items() if command == "score" else [("image", SHAPES["image"])]:
        shape = json.loads(json.dumps(shape).replace("{here}", str(Path.cwd())))
        scored_file("data/rows.jsonl", ROW | shape, judge="vlm")
        output = f"out/{name}.{extension}"
        model = [] if command in ("import", "export") else ["--model", "vlm", "--no-store"]
        run(MOVED[command].format(out=output), *model, code=(0, 1))  # the fake engine writes no checklist
        rows = list(read_rows(output))
        assert rows
        for row in rows:
            prompts = ["prompt"] if "prompt" in row.data else ["input"]
            _, _, images = Columns.of(row, inputs=prompts).context_of(row.data, row.where)
            assert list(images) == [RED], (command, name, row.data)
            assert ("images/red.png" in json.dumps(row.data, default=str)) or command == "export"
            assert "elsewhere" not in json.dumps(row.data, default=str)


def test_files_in_two_folders_are_about_the_same_images(run, looking):
    """`diff` matches rows without ids by their prompts, and `agree` refuses other images. A folder may be a link."""
    for folder in ("data/x", "disk/7"):
        Path(folder).mkdir(parents=True)
    Path("data/seen").symlink_to("../disk/7", target_is_directory=True)
    rows = [ROW | {"image": path} for path in ("red.png", "seen/blue.png", "./x/../green.png")]
    for row in rows:
        PILLOWS[Path(row["image"]).stem].save(Path("data", row["image"]))
    shown = {"type": "image_url", "image_url": {"url": "seen/blue.png"}}
    rows.append(ROW | {"prompt": [{"role": "user", "content": [shown, {"type": "text", "text": "Which?"}]}]})
    write_jsonl("data/rows.jsonl", *rows)
    files = ["out/scored.jsonl", "a/b/scored.jsonl"]
    for file in files:
        run("score data/rows.jsonl --model vlm --no-store", "-o", file)
    assert read_jsonl(files[0])[0]["image"] != read_jsonl(files[1])[0]["image"]
    run("diff --json diff.json --bootstrap 0", *files)
    assert json.loads(Path("diff.json").read_text())["rows"] == len(rows)
    assert "images differ" not in run("agree --bootstrap 0", *files).output
    labels = [row | {"labels": ["yes", "no"], "id": str(n)} for n, row in enumerate(read_jsonl(files[1]), start=1)]
    write_jsonl("data/labels.jsonl", *labels)
    run("agree --labels data/labels.jsonl --bootstrap 0", files[0])


def test_a_row_keeps_what_is_no_path_of_a_file(run, looking):
    """With --images ignore, the column may hold anything."""
    Path("data").mkdir()
    PILLOWS["red"].save("data/red.png")
    cell = {"bytes": None, "path": "red.png"}
    rows = [ROW | {"image": image} for image in ("00017", "red.png", ADDRESS, RED.url, cell)]
    write_jsonl("data/rows.jsonl", *rows)
    command = "score data/rows.jsonl -o out/scored.jsonl --images ignore --model vlm --no-store"
    run(command)
    cells = [row["image"] for row in read_jsonl("out/scored.jsonl")]
    assert cells == ["00017", "../data/red.png", ADDRESS, RED.url, {"bytes": None, "path": "../data/red.png"}]
    run(command.replace("out/", "data/"))
    assert [row["image"] for row in read_jsonl("data/scored.jsonl")] == [row["image"] for row in rows]


def test_rows_of_which_the_judge_would_see_no_image_are_scored(run, engine):
    engine()
    by_code = [{"question": "Is it short?", "check": {"type": "words", "at_most": 9}}]
    changes = ({"checklist": None}, {"target": ""}, {"checklist": by_code})
    PILLOWS["red"].save("red.png")
    write_jsonl("rows.jsonl", *(ROW | {"image": "red.png"} | change for change in changes))
    run("score rows.jsonl -o out.jsonl --model pocket --no-store", code=1)  # one row has no checklist
    scores = [row["checklist_score"] for row in read_jsonl("out.jsonl")]
    assert [score and score["primary_score"] for score in scores] == [None, 0, 1]


def test_a_saved_dataset_of_images_is_scored(run, looking):
    rows = Dataset.from_list([{**ROW, "image": image} for image in (PILLOWS["red"], None)])
    rows.save_to_disk("saved")
    run("score saved -o out.parquet --model vlm --no-store")
    assert looking.shown == [[RED.key]] * 2 + [[]] * 2
    out = Dataset.from_parquet("out.parquet")
    assert out.features["image"] == rows.features["image"], "trainers get images, not cells"
    assert [cell and image_of(cell) for cell in out.with_format("arrow")[:]["image"].to_pylist()] == [RED, None]
    several = Dataset.from_list([{**ROW, "images": [PILLOWS["red"]] * 2}, ROW])
    several.to_parquet("several.parquet")
    run("score several.parquet -o out.parquet --model vlm --no-store")
    assert Dataset.from_parquet("out.parquet").features["images"] == several.features["images"]
