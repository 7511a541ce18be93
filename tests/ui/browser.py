"""A headless Chromium, driven by selenium."""

import shutil
from pathlib import Path

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
).split()
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
