"""Images that tools of a real TRL trainer return: what the judge sees, and where.

The policy is a tiny random vision-language model, which cannot write a tool call. So the first turn of each completion
is scripted where TRL samples it (`_generate_single_turn`). Everything else is TRL's: it parses the call, runs the
tool, renders its result with the image, samples the next turn from the policy, which sees the image, calls the reward
and takes the step.
"""

import asyncio
import json
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest

from checklist_rewards.images import parts
from tests.backends.vision_architectures import build
from tests.rewards.fakes import assistant, call, reward_by, user
from tests.rewards.test_trl_images import trainer_of
from tests.test_images import IMAGES, PILLOWS, RED, Seeing

ASKED = "What colour is it?"
CALL = '<tool_call>\n{"name": "look", "arguments": {"place": "%s"}}\n</tool_call><|im_end|>'
CHECKLIST = ["Is it right?", {"question": "Does it show blue?", "scope": "any_tool_result"}]
RESULT = {"left": "green", "right": "blue"}


def look(place: str) -> list:
    """Look at a place.

    Args:
        place: Where to look.

    Returns:
        What is there.
    """
    here, image = {"type": "text", "text": "Here: "}, {"type": "image", "image": PILLOWS[RESULT[place]]}
    return [here, image, {"type": "text", "text": "Seen."}]


def photograph(place: str):  # TRL takes an image that is not in a list for a text
    return PILLOWS[RESULT[place]]


photograph.__name__, photograph.__doc__ = look.__name__, look.__doc__


class Room:
    """An environment whose first observation and whose tool are images."""

    def reset(self, **row) -> list:
        return [{"type": "text", "text": " Now: "}, {"type": "image", "image": PILLOWS["white"]}]

    def look(self, place: str) -> list:
        return look(place)


Room.look.__doc__ = look.__doc__


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A tiny random Qwen3-VL."""
    return build("Qwen3-VL", tmp_path_factory.mktemp("qwen"))


def scripted(trainer, tokens, texts):
    """Replace the first turns of a step by texts. The policy samples the turns after them."""
    sample, turns = trainer._generate_single_turn, iter([texts])

    def generate(prompt_ids, *args, **kwargs):
        given = next(turns, None)
        if given is None:
            return sample(prompt_ids, *args, **kwargs)
        return [tokens(text, add_special_tokens=False)["input_ids"] for text in given], None

    trainer._generate_single_turn = generate


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("settings", "columns", "input"),
    [
        ({"tools": [look]}, {"image": PILLOWS["red"]}, f"{RED.mark}{ASKED}"),
        ({"environment_factory": Room}, {}, f"{ASKED} Now: {IMAGES['white'].mark}"),
        ({"tools": [photograph]}, {}, ASKED),
    ],
    ids=["a tool and a column", "an environment", "an image that is not a part"],
)
def test_the_judge_sees_the_image_of_a_tool_result_in_its_place(policy, settings, columns, input, tmp_path):
    from trl.chat_template_utils import qwen3_vl_chat_template  # which has tools

    backend = Seeing()
    reward = reward_by(backend, judged="transcript")
    row = {"prompt": user(ASKED), "checklist": json.dumps(CHECKLIST)} | columns
    options = {"per_device_train_batch_size": 4, "max_tool_calling_iterations": 1, "template": qwen3_vl_chat_template}
    options["max_completion_length"] = 150 if columns else 250  # a call, its result and an answer
    trainer = trainer_of("GRPO", policy, reward, [row] * 4, tmp_path, **options, more=settings)
    places = ["left", "right", "right", "left"]
    scripted(trainer, trainer.processing_class.tokenizer, [CALL % place for place in places])
    trainer.train()
    samples = reward.last.samples
    assert [sample.input for sample in samples] == [input] * 4
    of_input = [part.key for part in parts(input) if not isinstance(part, str)]
    is_text = settings.get("tools") == [photograph]
    for place, sample in zip(places, samples, strict=True):
        image = IMAGES[RESULT[place]]
        begins = f'assistant calls look(place="{place}")\n\ntool look: '
        if is_text:
            assert sample.target.startswith(f"{begins}<PIL.Image.Image image mode=RGB size=8x8")
            assert not sample.target_images
            continue
        assert sample.target.startswith(f"{begins}Here: {image.mark}Seen.\n\nassistant: ")
        assert sample.target_images == (image,) and [m.role for m in sample.messages][:2] == ["assistant", "tool"]
        for asked, keys in zip(backend.asked, backend.shown, strict=True):
            if sample.target in asked[0] or ("Does it show" in asked[1] and image.mark in asked[0]):
                assert keys == [*of_input, image.key]
    assert {len(keys) for keys in backend.shown} == {len(of_input) + (not is_text)}
    assert all(score.primary_score == 0.75 for score in reward.last.scores)


def test_async_grpo_makes_a_text_of_every_tool_result():
    """What its workers pass on, which have no images either (`async_rollout_worker.py`)."""
    worker = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
    counts = SimpleNamespace(_counters=Counter(), _rates=defaultdict(lambda: [0, 0]), _tool_pool=None)
    asked = {"type": "function", "function": {"name": "look", "arguments": {"place": "right"}}}
    run = worker._AsyncRolloutLoop._execute_tool_calls(counts, [asked], {"look": look})
    [message], calls, failures = asyncio.run(run)
    assert (calls, failures) == (1, 0) and message["content"] == str(look("right"))
    reward = reward_by(Seeing(), judged="transcript")
    completion = [{"role": "assistant", "tool_calls": [asked]}, message, *assistant("Blue.")]
    assert reward(**call([completion], [user(ASKED)])) == [0.75]
    [sample] = reward.last.samples
    assert "'image': <PIL.Image.Image" in sample.target and not sample.target_images
