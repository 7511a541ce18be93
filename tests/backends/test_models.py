"""Models of the Hub: found, missing, or in the local cache of a machine without a network."""

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest

from checklist_rewards.backends import Engine, models, pocket_dir
from checklist_rewards.backends.embedding import choose_embedder
from checklist_rewards.backends.models import from_hub, hub_commit
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.rewards.batch import load_tokenizer
from tests.conftest import HANG
from tests.jsonl import write_jsonl

COMMIT = "a" * 40


def cached(cache, name):
    """A model in a cache of the Hub, as `hf download` leaves it."""
    repository = cache / f"models--{name.replace('/', '--')}"
    shutil.copytree(pocket_dir(), repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)


@contextmanager
def hub(status, code=None):
    """A Hub that answers every request like this; with status None it closes each connection."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.server.asked.append(self.path)
            if status is None:
                self.close_connection = True
                return
            self.send_response(200 if self.path == "/" else status)
            if code is not None:
                self.send_header("X-Error-Code", code)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def online(tmp_path, monkeypatch):
    """As in a fresh HOME without HF_HUB_OFFLINE: an empty cache, and requests to the Hub that the test chooses."""

    def forget():
        for remembered in (hub_commit, models._silence, models._warn_once):
            remembered.cache_clear()

    def at(server):
        constants = huggingface_hub.constants
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(constants, "ENDPOINT", address)
        of_files = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", of_files)
        forget()
        return address

    yield at
    forget()


LOADERS = {
    "engine": lambda name: Engine(name, "transformers").load(),  # kept until the end of this process
    "tokenizer of a reward": load_tokenizer,
    "embedder": lambda name: choose_embedder(name)(["A text."]),
}


@pytest.mark.parametrize("loader", ["engine", "tokenizer of a reward"])
def test_a_model_in_the_cache_is_loaded_without_a_network_and_nothing_is_asked_twice(loader, online, tmp_path, caplog):
    cached(tmp_path, "org/cached")
    with hub(None) as server, caplog.at_level(logging.WARNING):
        address = online(server)
        LOADERS[loader]("org/cached")
        assert server.asked == ["/"]
    assert f"{address} does not respond" in caplog.text and "local cache" in caplog.text
    assert not huggingface_hub.constants.HF_HUB_OFFLINE and "HF_HUB_OFFLINE" not in os.environ


@pytest.mark.parametrize("loader", LOADERS)
def test_a_model_that_is_nowhere_is_an_error_at_the_first_request(loader, online):
    with hub(None) as server:
        online(server)
        with pytest.raises((ModelError, SampleError)):
            LOADERS[loader]("org/nowhere")
        assert server.asked == ["/"]


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (None, None, "does not respond: Server disconnected"),
        (404, "RepoNotFound", "no such model; a private one requires `hf auth login`"),
        (403, "GatedRepo", "it is gated: accept its terms on its page and log in with `hf auth login`"),
        (404, "EntryNotFound", "RemoteEntryNotFoundError"),
    ],
)
def test_a_model_that_the_hub_does_not_give_is_one_sentence_with_the_reason(status, code, reason, online):
    with hub(status, code) as server:
        online(server)
        with pytest.raises(ModelError) as raised:
            hub_commit("org/nowhere")
    [line] = str(raised.value).splitlines()
    assert line.startswith("model 'org/nowhere' was found neither as a folder nor on the Hub nor in its local cache (")
    assert reason in line


def test_processes_that_start_while_the_hub_is_silent_do_not_ask_it(online):
    with hub(None) as server:
        online(server)
        with from_hub("org/judge") as reason:
            assert "does not respond" in reason and os.environ["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in os.environ


def test_with_the_defaults_a_fresh_home_without_a_network_scores_with_a_model_of_its_cache(tmp_path):
    """A process without the settings of `conftest.py`: no HF_HUB_OFFLINE, no thread limit, a store in its HOME."""
    cached(tmp_path / ".cache" / "huggingface" / "hub", "org/judge")
    write_jsonl(tmp_path / "rows.jsonl", {"prompt": "A", "target": "Is it?", "checklist": ["Is it short?"]})
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # not listening: connections are refused
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        environment = {name: os.environ.get(name, "") for name in ("PATH", "PYTHONPATH")}
        environment |= {"HOME": str(tmp_path), "HF_ENDPOINT": address}
        command = [sys.executable, "-m", "checklist_rewards.cli", "score", "rows.jsonl", "-o", "scored.jsonl"]
        command += ["--model", "org/judge", "--backend", "transformers"]  # by default vLLM where it is installed
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": HANG}
        done = subprocess.run(command, env=environment, cwd=tmp_path, **options)
    assert done.returncode == 0, done.stderr
    [row] = map(json.loads, (tmp_path / "scored.jsonl").read_text().splitlines())
    assert row["checklist_score"]["answered"] == 1
    assert done.stderr.startswith(f"{address} does not respond") and done.stderr.count(address) == 1
    assert "Loading weights" not in done.stderr
    assert (tmp_path / ".cache" / "checklist-rewards" / "store.sqlite").is_file()
