"""A headless Firefox, driven over its own socket (Marionette): no driver has to be installed."""

import base64
import itertools
import json
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.conftest import HANG

MISSING = "no Firefox (Debian: apt-get install firefox-esr)"
FLAGS = ("--headless", "--marionette", "--remote-allow-system-access", "--no-remote")
PREFERENCES = {
    "marionette.port": 0,
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "toolkit.telemetry.enabled": False,
}
MESSAGES = """
const told = Cc["@mozilla.org/consoleAPI-storage;1"].getService(Ci.nsIConsoleAPIStorage);
const ofPage = (name) => /^(http|file|data):/.test(name ?? "");
const called = told.getEvents().filter((one) => ofPage(one.filename)).map((one) => one.arguments.join(" "));
const wrong = Services.console.getMessageArray().filter((one) => one instanceof Ci.nsIScriptError);
const found = wrong.filter((one) => ofPage(one.sourceName)).map((one) => one.errorMessage);
told.clearEvents();
Services.console.reset();
return [...called, ...found];
"""


def found() -> str | None:
    """The path of Firefox, if it is installed."""
    return shutil.which("firefox-esr") or shutil.which("firefox")


class Firefox:
    """A browser with a fresh profile."""

    def __init__(self, profile: Path):
        profile.mkdir(parents=True)
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
        (profile / "user.js").write_text("\n".join(lines))
        flags = [
            "--headless",
            "--marionette",
            "--remote-allow-system-access",
            "--no-remote",
            "--profile",
            str(profile),
        ]
        self.process = subprocess.Popen([found(), *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port, until = profile / "MarionetteActivePort", time.monotonic() + HANG
        while not port.exists() or not port.read_text():
            assert self.process.poll() is None and time.monotonic() < until, "Firefox does not start"
            time.sleep(0.1)
        self.socket = socket.create_connection(("127.0.0.1", int(port.read_text())), timeout=HANG)
        self.numbers = itertools.count(1)
        self._received()
        self.command("WebDriver:NewSession")

    def command(self, name: str, **parameters):
        """Send a command; the value of its answer."""
        message = json.dumps([0, next(self.numbers), name, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(message), message))
        _, _, error, answer = self._received()
        assert error is None, error
        return answer["value"] if isinstance(answer, dict) and "value" in answer else answer

    def _received(self):
        head = b""
        while not head.endswith(b":"):
            head += self.socket.recv(1)
        left, parts = int(head[:-1]), []
        while left:
            parts.append(self.socket.recv(left))
            left -= len(parts[-1])
        return json.loads(b"".join(parts))

    def get(self, address: str) -> None:
        self.command("WebDriver:Navigate", url=address)

    def run(self, script: str, *arguments):
        return self.command("WebDriver:ExecuteScript", script=script, args=list(arguments))

    def wait(self, condition: str, *arguments):
        """Until the condition, which returns a value, holds."""
        until = time.monotonic() + HANG
        while not (value := self.run(condition, *arguments)):
            assert time.monotonic() < until, condition
            time.sleep(0.05)
        return value

    def keys(self, *names: str, held: str = "") -> None:
        """Press keys, one after the other, while another one may be held."""
        actions = [{"type": kind, "value": name} for name in names for kind in ("keyDown", "keyUp")]
        if held:
            actions = [{"type": "keyDown", "value": held}, *actions, {"type": "keyUp", "value": held}]
        self.command("WebDriver:PerformActions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag the mouse from one place of the page to another."""
        moves = [{"type": "pointerMove", "x": round(x), "y": round(y), "duration": 50} for x, y in (start, end)]
        actions = [moves[0], {"type": "pointerDown", "button": 0}, moves[1], {"type": "pointerUp", "button": 0}]
        source = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}
        self.command("WebDriver:PerformActions", actions=[source])

    def resize(self, width: int, dark: bool = False) -> None:
        """The width of the page, and whether it prefers dark colours."""
        self._chrome(
            "document.documentElement.style.minWidth = '0'; window.resizeTo(Math.max(arguments[0], 500), 1000);"
            "gBrowser.selectedBrowser.style.maxWidth = `${arguments[0]}px`;"
            "Services.prefs.setIntPref('layout.css.prefers-color-scheme.content-override', arguments[1] ? 0 : 1);",
            width,
            dark,
        )
        self.wait("return innerWidth === arguments[0]", width)

    def errors(self) -> list[str]:
        """Errors and warnings on the console since the last call."""
        return self._chrome(MESSAGES)

    def _chrome(self, script: str, *arguments):
        self.command("Marionette:SetContext", value="chrome")
        try:
            return self.run(script, *arguments)
        finally:
            self.command("Marionette:SetContext", value="content")

    def picture(self, path: Path) -> None:
        """A screenshot."""
        path.write_bytes(base64.b64decode(self.command("WebDriver:TakeScreenshot", full=False)))

    def quit(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait(HANG)
