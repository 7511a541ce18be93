"""Layout shift as browsers report it: how far the parts of a page that were in sight moved, from 0 to 1 per frame."""

START = """
window.shifts = [];
window.observer?.disconnect();
window.observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries())
        window.shifts.push([entry.value, entry.sources.map((one) => one.node?.className || one.node?.nodeName)]);
});
window.observer.observe({type: 'layout-shift'});
"""
LIMIT = 0.1
"""Cumulative layout shift below this is good (web.dev). Unlike there, shifts right after input count here too."""


def watch(driver) -> None:
    """Count the shifts from now on."""
    driver.execute_script(START)


def shifted(driver) -> float:
    """The sum of all shifts since [`watch`], after two more frames."""
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))")
    found = driver.execute_script("return window.shifts")
    for value, sources in found:
        print(f"layout shift {value:.4f}: {sources}")  # shown if the test fails
    return sum(value for value, _ in found)
