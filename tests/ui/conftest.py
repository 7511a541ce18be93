"""A browser per test process, and one page with everything."""

import pytest

from tests.ui import browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A headless Chromium; the tests that need it are skipped without one."""
    if browser.found() is None:
        pytest.skip(browser.MISSING)
    driver = browser.start(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()
