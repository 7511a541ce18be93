"""A headless Chromium, driven by selenium, what axe-core finds on its page, and a report in it."""

import json
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from tests.conftest import HANG

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
).split()
AXE = Path(__file__).parent / "axe" / "axe.min.js"
VIOLATIONS = """
const rules = {runOnly: arguments[0], resultTypes: ['violations']};
const told = (one) => [one.id, one.nodes.map((node) => node.target.join(' '))];
axe.run(document, rules).then((result) => arguments[1](result.violations.map(told)));
"""
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
OF_COLORS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""The rules of axe-core that depend on colors. The others find the same in a light and in a dark page."""
MISSING = "no browser: install Chromium and its driver (Debian: apt-get install chromium chromium-driver)"


def found() -> tuple[str, str] | None:
    """The paths of Chromium and its driver, if both are installed."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def start(profile: Path, *, width: int = 1280, height: int = 900, dark: bool = False):
    """A browser with a fresh profile. Its console messages are kept; see [`errors`]."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    places = found()
    assert places is not None, MISSING
    options = Options()
    options.binary_location = places[0]
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(places[1]))
    driver.set_script_timeout(HANG)
    resize(driver, width, height)
    scheme(driver, dark)
    return driver


def resize(driver, width: int, height: int = 900) -> None:
    """Set the size of the page. A window cannot be narrower than 500 pixels, a device can."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def scheme(driver, dark: bool) -> None:
    """Prefer a light or a dark page."""
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def leave(driver) -> None:
    """Leave the page of an earlier test, which may ask a server that has stopped, and forget its messages."""
    driver.get("about:blank")
    errors(driver)


def errors(driver) -> list[str]:
    """Messages on the console since the last call."""
    return [entry["message"] for entry in driver.get_log("browser")]


def violations(driver, rules: dict = RULES) -> list:
    """What axe-core finds on the page by its rules for WCAG 2.1 A and AA, with contrast, and best practices."""
    if not driver.execute_script("return 'axe' in window"):
        driver.execute_script(f"{AXE.read_text(encoding='utf-8')}; window.axe = axe")
    return driver.execute_async_script(VIOLATIONS, rules)


def problems(driver) -> dict:
    """[`violations`] in light and dark, wide and narrow, and whether the page is wider than the window."""
    found = {}
    for width in (1280, 390):
        resize(driver, width)
        for dark, rules in ((False, RULES), (True, OF_COLORS)):
            scheme(driver, dark)
            if broken := violations(driver, rules):
                found[width, dark] = broken
        if driver.execute_script("return document.documentElement.scrollWidth > innerWidth"):
            found[width] = "scrolls sideways"
    resize(driver, 1280)
    scheme(driver, False)
    return found


class Page:
    """A page in the browser. Elements are named by selectors of CSS; `wait` takes an expression of JavaScript."""

    def __init__(self, driver):
        self.driver = driver

    def js(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, *arguments):
        from selenium.webdriver.support.wait import WebDriverWait

        script = f"return {condition}"
        return WebDriverWait(self.driver, HANG, 0.05).until(lambda _: self.js(script, *arguments))

    def has(self, selector: str, count: int | None = None) -> None:
        """Wait for an element, or for exactly so many."""
        found = "document.querySelectorAll(arguments[0]).length"
        self.wait(f"{found} > 0" if count is None else f"{found} === {count}", selector)

    def find(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def click(self, selector: str) -> None:
        self.find(selector).click()

    def press(self, text: str, tag: str = "button") -> None:
        """Click a button, or another element, by its text."""
        self.driver.find_element("xpath", f"//{tag}[normalize-space()={json.dumps(text)}]").click()

    def pick(self, selector: str, value: str) -> None:
        """Choose an entry of a list."""
        script = "const [list, value] = arguments; list.value = value;"
        script += "for (const kind of ['input', 'change']) list.dispatchEvent(new Event(kind, {bubbles: true}))"
        self.js(script, self.find(selector), value)

    def keys(self, *texts: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*texts).perform()

    def focus(self, selector: str) -> None:
        self.js("document.querySelector(arguments[0]).focus()", selector)

    def text(self, selector: str = "main") -> str:
        return self.js("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector: str) -> list[str]:
        """What is written in all elements, also in fields."""
        text = "(one) => /INPUT|TEXTAREA|SELECT/.test(one.tagName) ? one.value : one.textContent"
        return self.js(f"return [...document.querySelectorAll(arguments[0])].map({text})", selector)

    def count(self, selector: str) -> int:
        return self.js("return document.querySelectorAll(arguments[0]).length", selector)

    def value(self, selector: str) -> str:
        return self.js("return document.querySelector(arguments[0]).value", selector)

    def pause(self, milliseconds: int = 300) -> None:
        self.driver.execute_async_script("setTimeout(arguments[1], arguments[0])", milliseconds)


class ReportPage(Page):
    """A report."""

    def __init__(self, driver, path: Path):
        super().__init__(driver)
        self.path = path

    def open(self, where: str = "") -> None:
        """Load the page at a place such as "0/matrix/3"."""
        self.driver.get("about:blank")
        self.driver.get(f"file://{self.path}#/{where}")
        self.wait("Object.keys(document.querySelector('main').dataset).length === 2")

    def turn(self, where: str) -> None:
        """Go to another place of the page that is open."""
        self.js("location.hash = `#/${arguments[0]}`", where)
        self.wait("document.querySelector('main').dataset.view === arguments[0]", where.split("/")[1])

    def filter(self, label: str, value) -> None:
        """Set a filter of the matrix and wait for its rows."""
        self.js(
            """
            const labels = [...document.querySelectorAll('.filters label')];
            const label = labels.find((one) => one.textContent.startsWith(arguments[0]));
            const input = label.querySelector('input, select');
            if (input.type === 'checkbox') input.click();
            else {
                input.value = arguments[1];
                input.dispatchEvent(new Event(input.tagName === 'SELECT' ? 'change' : 'input'));
            }
            """,
            label,
            value,
        )
        self.pause(200)

    @property
    def status(self) -> str:
        return self.text("[role=status]")

    @property
    def shown(self) -> str:
        """The text of the page without what is folded."""
        return self.js("return document.querySelector('main').innerText")

    def check(self) -> None:
        """Nothing on the console, nothing hostile ran, nothing wider than the window."""
        assert errors(self.driver) == []
        assert self.js("return window.hacked === undefined && !document.querySelector('main img, main script')")
        assert self.js("return document.documentElement.scrollWidth <= innerWidth"), "it is wider than the window"


class AppPage(Page):
    """The app, at the URL that it prints."""

    def __init__(self, driver, url: str, ready: str):
        super().__init__(driver)
        self.base = f"http://{urlsplit(url).netloc}"
        leave(driver)
        driver.get(url)
        self.has(ready)

    def go(self, path: str, ready: str) -> None:
        """Load a view and wait for an element of it."""
        self.driver.get(self.base + path)
        self.has(ready)

    def fill(self, selector: str, text: str) -> None:
        field = self.find(selector)
        field.clear()
        field.send_keys(text)
        self.js("arguments[0].dispatchEvent(new Event('change', {bubbles: true}))", field)

    def unfold(self, selector: str) -> None:
        """Open the part of the page that can be folded, by itself or by an element of it."""
        self.js("document.querySelector(arguments[0]).closest('details').open = true", selector)

    def refused(self) -> bool:
        """Whether all messages on the console are of refused requests."""
        return all("400" in message for message in errors(self.driver))
