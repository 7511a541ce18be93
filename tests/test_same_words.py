"""Rows with the same words and different images are different prompts, wherever prompts are compared.

Without images, every key is what it was: stored annotations, logs and checkpoints stay valid.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine
from checklist_rewards.checklists import Checklist
from checklist_rewards.cli.improving import _labelled_rows
from checklist_rewards.cli.options import Keys
from checklist_rewards.cli.replaying import _prompt_of
from checklist_rewards.errors import GenerationError
from checklist_rewards.evaluation.differences import Differences
from checklist_rewards.evaluation.labels import same_text
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.evolving.evolve import rows_of
from checklist_rewards.monitor.audit import observations
from checklist_rewards.rewards.batch import Call, groups_of
from checklist_rewards.rewards.trl import ChecklistReward
from checklist_rewards.scores import Verdict, score_checklist
from checklist_rewards.ui.annotations import read_tasks
from checklist_rewards.ui.comparisons import read_log
from tests.evolving.fakes import Script
from tests.jsonl import read_jsonl, write_jsonl
from tests.test_images import PILLOWS, RED, Seeing, asks, asks_by

COLOURS = ("red", "red", "blue", "blue")
TEXTS = ("One.", "Two.", "Three.", "Four.")
ITEMS = Checklist.parse(["Is it red?"])
SCORE = score_checklist(ITEMS, [Verdict({"yes": 0.5, "no": 0.5})]).model_dump()


def in_a_column(colours=COLOURS):
    return {"prompts": ["What?"] * len(colours), "images": [[PILLOWS[colour]] for colour in colours]}


def in_front(colours=COLOURS):
    """Of messages that have no place for them."""
    return in_a_column(colours) | {"prompts": [[{"role": "user", "content": "What?"}]] * len(colours)}


def in_messages(colours=COLOURS):
    return {"prompts": [asks(PILLOWS[colour], "What?") for colour in colours]}


def in_both(colours=COLOURS):
    """As TRL passes them."""
    return in_messages(colours) | {"images": [[PILLOWS[colour]] for colour in colours]}


def rewarded(**options):
    return ChecklistReward(ChecklistScorer(Engine(backend=Seeing()), store=False), **options)


def called(reward, columns, **more):
    count = len(columns["prompts"])
    return reward(completions=list(TEXTS[:count]), checklist=[["Is it red?"]] * count, **columns, **more)


def at_a_step():
    """What a trainer passes as its state."""
    return SimpleNamespace(global_step=0, stateful_callbacks={})


# ----- calls of a trainer -----

GIVEN = pytest.mark.parametrize(
    ("given", "images"), [(in_a_column, "show"), (in_front, "ignore"), (in_messages, "show"), (in_both, "ignore")]
)


@GIVEN
def test_a_reward_shapes_evolves_and_monitors_them_apart(given, images, tmp_path):
    proposer = Script(lambda group: None)
    evolving = {"proposer": proposer, "refiners": [], "every": 1}
    monitor = {"log": str(tmp_path / "monitor.jsonl"), "max_canary": None}
    reward = rewarded(images=images, shaping=["centred"], evolving=evolving, monitor=monitor)
    called(reward, given(), trainer_state=at_a_step())
    first, second, third, fourth = reward.last.groups
    assert first == second and third == fourth and first != third
    assert [len(group.responses) for group in proposer.groups] == [2, 2]
    records = read_jsonl(tmp_path / "monitor.jsonl")
    assert [record["groups"] for record in records if record["kind"] == "step"] == [2]


def test_a_proposer_and_its_failures_are_shown_no_marks(caplog):
    proposer = Script(lambda group: GenerationError("it broke"))
    reward = rewarded(judged="transcript", evolving={"proposer": proposer, "refiners": [], "every": 1})
    looks = [{"role": "tool", "content": asks(PILLOWS["blue"])[0]["content"]}, {"role": "assistant", "content": "A."}]
    reward([asks(PILLOWS["red"], "What?")] * 2, [looks] * 2, [["Is it red?"]] * 2, trainer_state=at_a_step())
    [group] = proposer.groups
    assert group.responses[0] == "tool: [image]\n\nassistant: A." and group.input == f"{RED.mark}What?"
    assert "prompt '[image]What?': it broke" in caplog.text


@GIVEN
def test_a_part_of_a_split_reward_does_not_take_the_scores_of_other_images(given, images):
    reward = rewarded(images=images)
    first, second = reward.split(names=["other", "form"])
    for part, colour in ((first, "red"), (second, "blue")):
        called(part, given([colour] * 2))
    assert reward._calls == 2
    called(second, given(["red"] * 2))
    assert reward._calls == 2


def test_the_order_of_a_trainer_is_not_that_of_completions_with_two_images_in_a_group():
    trainer = SimpleNamespace(num_generations=4)
    apart, alike = (
        replace(Call.of(completions=TEXTS, **in_a_column(*given)), trainer=trainer) for given in ((), (["red"] * 4,))
    )
    assert groups_of(apart, 0) == [] and len(set(groups_of(alike, 0))) == 1


# ----- rows of files -----


def rows(**more):
    """The rows of a file: two texts about each of two images."""
    return [
        {"prompt": "What?", "images": [f"{colour}.png"], "target": text, "checklist": ["Is it red?"], **more}
        for colour, text in zip(COLOURS, TEXTS, strict=True)
    ]


def log_of(path, images="show"):
    """A log of a reward whose trainer shows no groups."""
    called(rewarded(images=images, log=path), in_a_column(), trainer_state=at_a_step())
    return path


def prompts_in_a_log(path):
    return [text.group for text in ScoredFile(log_of(path))]


def prompts_in_a_log_of_ignored_images(path):
    return [text.group for text in ScoredFile(log_of(path, "ignore"))]


def prompts_of_an_audit(path):
    [step] = observations([log_of(path)])
    assert {one.prompt_key for one in step.seen} == set(step.prompts.values())
    return [one.group for one in step.seen]


def prompts_of_a_comparison(path):
    return [keys["step"].partition("#")[0] for _text, keys in read_log(ScoredFile(log_of(path)))]


def groups_of_an_improvement(path):
    write_jsonl(path, *rows(labels=1.0))
    found, _names = _labelled_rows(path, "labels", None, False, Keys(images="ignore"), None, ITEMS)
    return [text.group for text in found]


def prompts_of_a_replay(path):
    write_jsonl(path, *rows(checklist_score=SCORE))
    return [_prompt_of(text) for text in ScoredFile(path)]


def groups_of_a_diff(path):
    write_jsonl(path, *rows(checklist_score=SCORE))
    with Differences(by_id=False) as differences:
        for side in (0, 1):
            for text in ScoredFile(path):
                differences.add(side, text)
        list(differences.rows())
        found = list(differences.database.execute("SELECT grp FROM rows WHERE side = 0 ORDER BY id"))
        assert len(differences._sums) == len(set(found))  # as many clusters
    return found


@pytest.mark.parametrize(
    "prompts",
    [
        prompts_in_a_log,
        prompts_in_a_log_of_ignored_images,
        prompts_of_an_audit,
        prompts_of_a_comparison,
        groups_of_an_improvement,
        prompts_of_a_replay,
        groups_of_a_diff,
    ],
)
def test_rows_of_two_images_are_two_groups(prompts, tmp_path):
    first, second, third, fourth = prompts(tmp_path / "rows.jsonl")
    assert first == second and third == fourth and first != third


def test_an_annotation_of_one_image_is_not_one_of_another(tmp_path):
    write_jsonl(tmp_path / "rows.jsonl", *(row | {"target": "Red."} for row in rows()))
    first, second, third, _ = (task.text for task in read_tasks(tmp_path / "rows.jsonl"))
    assert first == second != third
    drawn = [{"role": "assistant", "content": asks_by("url", RED.url, "Here.")[0]["content"]}]
    write_jsonl(
        tmp_path / "rows.jsonl", {"prompt": asks_by("url", RED.url), "target": drawn, "checklist": ["Is it red?"]}
    )
    [task] = read_tasks(tmp_path / "rows.jsonl")
    assert (task.prompt, task.target) == ("[image]What?", "[image]Here.")


@pytest.mark.parametrize(
    ("images", "same"),
    [
        ({"images": ["red.png"]}, True),
        ({}, True),  # a file of labels alone
        ({"images": ["blue.png"]}, False),
        ({"images": ["red.png", "blue.png"]}, False),
        ({"images": [{"hash": "0" * 32}]}, True),  # a path cannot be compared with a hash
    ],
)
def test_a_label_of_one_image_is_not_one_of_another(images, same):
    label = {"prompt": "What?", "target": "One.", **images}
    assert same_text(rows()[0], label) is same
    exported = label | {"prompt": "[image]What?"}
    assert same_text(rows()[0], {name: exported[name] for name in ("prompt", "target")}) is True


# ----- without images -----

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What colour is it?"}]},
]


KEYS = {
    "What colour is it?": {
        "evolving": "b82a4a2d1a1e41fa",
        "annotation": "a85baba04449a2b0",
        "seen": "be6ca6081f47d64b",
        "prompt": "4f6c6d4458df076c",
    },
    "system: Be brief.\n\nuser: What colour is it?": {
        "evolving": "509ae29c3c53b15d",
        "annotation": "49e08b9b1e999227",
        "seen": "ae567b9442745d07",
        "prompt": "32b30974acf13b35",
    },
}


@pytest.mark.parametrize(("prompt", "group"), list(zip(["What colour is it?", MESSAGES], KEYS, strict=True)))
def test_without_images_every_key_is_that_of_earlier_versions(prompt, group, tmp_path):
    write_jsonl(tmp_path / "rows.jsonl", {"prompt": prompt, "target": "Red.", "checklist": ["Is it red?"]})
    line = {"step": 3, "prompt": prompt, "completion": "Red.", "reward": 0.5, "score": None}
    write_jsonl(tmp_path / "log.jsonl", line)
    [row] = rows_of(Call.of([prompt], ["Red."], checklist=[["Is it red?"]]), "checklist")
    [task] = read_tasks(tmp_path / "rows.jsonl")
    [step] = observations([tmp_path / "log.jsonl"])
    [text] = ScoredFile(tmp_path / "log.jsonl")
    assert text.group == f"3\n{group}"
    assert KEYS[group] == {
        "evolving": row.key,
        "annotation": task.text,
        "seen": step.seen[0].group[:16],
        "prompt": step.seen[0].prompt_key[:16],
    }
