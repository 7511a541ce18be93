"""Images of rows in headless Chromium, before a judge that sees: thumbnails in Pairs, Compare and Annotate."""

import json

import pytest
from PIL import Image as pillow

from tests.ui import browser
from tests.ui.app.conftest import AppPage, scored_rows, started
from tests.ui.app.judgeserver import JudgeServer
from tests.ui.files import write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_messages")]

ADDRESS = "https://example.com/cat.png"
IMAGES = (["red.png"], [], ["broken.png", "blue.png"], ["red.png"] * 20, [ADDRESS])
SHOWN = (["image 1"], [], ["cannot be decoded", "image 2"], ["image"] * 16 + ["4 more images"], [ADDRESS])
"""What stands for each of them: an image by its name, or a part of a sentence."""
ITEMS = ["Is it red?"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for name in ("red", "blue"):
        pillow.new("RGB", (300, 200), name).save(folder / f"{name}.png")
    (folder / "broken.png").write_bytes(b"not an image")
    rows = [{"prompt": f"What is {number}?", "images": images} for number, images in enumerate(IMAGES)]
    pair = {"chosen": "It is red.", "rejected": "It is not red.", "score_chosen": 1.0, "score_rejected": 0.0}
    write(folder / "pairs.jsonl", [row | pair for row in rows])
    texts = {"candidates": ["A red square.", "A blue one."], "checklist": ITEMS}
    write(folder / "candidates.jsonl", [row | texts for row in rows])
    write(folder / "rows.jsonl", [row | {"target": "It is red.", "checklist": ITEMS} for row in rows])
    write(folder / "scored.jsonl", [row | {"image": "red.png"} for row in scored_rows()])
    return folder


@pytest.fixture(scope="module")
def judge():
    server = JudgeServer()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def url(project, judge):
    with started(project, "--model", "valid", "--base-url", judge.url, "--no-store") as url:
        yield url


@pytest.fixture(scope="module")
def page(url, chromium) -> AppPage:
    return AppPage(chromium, url, "#view table")


def shown(page, within="main") -> list[str]:
    """The images of a part of the page: the name of one that is drawn, or the sentence in its place."""
    script = """
    const parts = [...document.querySelectorAll(`${arguments[0]} .images`)].filter((one) => one.checkVisibility());
    if (parts.length > 1) return [`${parts.length} times`];
    return parts.flatMap((part) => [...part.children]).map((one) => {
      if (one.tagName !== "IMG") return one.textContent;
      return one.naturalWidth && one.width <= 96 && one.height <= 96 ? one.alt : "not drawn";
    });
    """
    return page.js(script, within)


def check(found: list[str], expected: list[str]) -> None:
    assert len(found) == len(expected) and all(map(str.__contains__, found, expected)), (found, expected)


def no_other_host(page) -> bool:
    """Whether everything that the page has loaded is from the app, or in the page."""
    names = page.js("return performance.getEntriesByType('resource').map((one) => one.name)")
    return all(name.startswith((page.base, "data:image/jpeg;base64,")) for name in names)


def test_pairs_show_the_images_of_a_prompt_once(page):
    page.driver.get(f"{page.base}/report?file=pairs.jsonl#/0/pairs")
    page.wait(f"document.querySelectorAll('article').length === {len(IMAGES)}")
    page.wait("[...document.querySelectorAll('img')].every((one) => one.complete)")
    for place, expected in enumerate(SHOWN, start=1):
        check(shown(page, f"article:nth-of-type({place})"), expected)
    assert no_other_host(page)


def test_compare_shows_the_images_of_each_row_and_its_judge_sees_them(page, judge):
    page.go("/compare", "[name=target-B]")
    page.fill("[name=target-B]", "a draft")
    page.go("/", ".files a")
    page.driver.find_element("xpath", "//a[@aria-label='Compare: candidates.jsonl']").click()
    for place, expected in enumerate(SHOWN, start=1):
        page.wait(f"document.querySelector('[name=input]')?.value.endsWith('What is {place - 1}?')")
        page.wait("[...document.querySelectorAll('.images img')].every((one) => one.complete)")
        check(shown(page), expected)
        if len(expected) > 16:
            assert browser.problems(page.driver) == {}
        page.pick("[name=row]", str(place % len(SHOWN) + 1))
    page.wait("document.querySelector('[name=input]').value === '[image]What is 0?'")
    page.click("[name=score]")
    page.has("#chip [data-state=current]")
    assert page.texts(".compared-items .pill") == ["yes passes", "yes passes"]
    assert all("<image red>What is 0?" in text for text in list(judge.answered)[-2:])
    page.find("[name=input]").send_keys("\ue011", *["\ue017"] * len("[image]"))  # Home, Del
    page.has("#chip [data-state=stale]")
    assert shown(page) == [], "the judge would see the text alone"
    page.pick("[name=pick-B]", "0")
    assert page.value("[name=target-B]") == "A red square."
    page.pick("[name=row]", "3")
    page.wait("document.querySelector('[name=input]').value.endsWith('What is 2?')")
    answered = judge.answered.total()
    page.click("[name=score]")
    page.has(".side [role=alert]", 2)
    told = page.text(".side [role=alert]")
    assert "candidates.jsonl, line 3" in told and "broken.png" in told and judge.answered.total() == answered
    browser.errors(page.driver)  # the browser notes each request that was refused
    page.go("/compare", "[name=score]")
    assert shown(page) == [] and page.value("[name=target-B]") == "a draft"
    assert no_other_host(page)


def test_a_row_of_a_report_keeps_its_images_in_judge_and_compare(page, judge):
    for button, answers in (("Open in Judge", ".editor .pill"), ("Compare", ".compared-items .pill")):
        page.driver.get("about:blank")
        page.driver.get(f"{page.base}/report?file=scored.jsonl#/0/matrix/0")
        page.wait("document.querySelector('.panel .images img')?.complete")
        check(shown(page), ["image 1"])
        page.driver.find_element("xpath", f"//button[.='{button}']").click()
        page.wait("document.querySelector('[name=score]') !== null && document.querySelector('.images img')?.complete")
        check(shown(page), ["image 1"])
        page.click("[name=score]")
        page.has("#chip [data-state=current]")
        assert {one.split()[0] for one in page.texts(answers)} == {"yes"}
        assert "<image red>Name a colour." in list(judge.answered)[-1]


def test_annotate_shows_what_is_judged(page, project):
    page.driver.get(f"{page.base}/annotate?file=rows.jsonl&annotator=ann")
    seen = set()
    for _ in IMAGES:
        prompt = page.wait("document.querySelector('.written:not(.response)')?.textContent")
        place = int(prompt.removesuffix("?").rpartition(" ")[2])
        assert prompt == "[image]" * len(IMAGES[place]) + f"What is {place}?"
        page.wait("[...document.querySelectorAll('.images img')].every((one) => one.complete)")
        check(shown(page, ".text"), SHOWN[place])
        seen.add(place)
        page.find("body").send_keys("y")
        last = len(seen) == len(IMAGES)
        page.wait(
            "document.querySelector('.progress-line strong') !== null"
            if last
            else f"document.querySelector('.written:not(.response)').textContent !== {json.dumps(prompt)}"
        )
    page.wait("document.querySelector('.saved').textContent === 'saved'")
    assert no_other_host(page)
