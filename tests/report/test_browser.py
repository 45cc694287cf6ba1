"""The report in headless Chromium: at two widths, light and dark, sorted, enlarged, printed."""

import pytest

import chromium
from calmoe.report.write import write_report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium"),
]
COLUMN = """(column) => [...document.querySelector("#results table").querySelectorAll("tbody tr")]
    .map((row) => row.cells[column].textContent)"""
BUTTON = 'document.querySelector("#results table").querySelectorAll("thead button")'


@pytest.fixture(scope="module")
def page(reference, swept, tmp_path_factory):
    return write_report([reference, *swept], tmp_path_factory.mktemp("report")).page


@pytest.mark.parametrize("scheme", chromium.SCHEMES)
@pytest.mark.parametrize("width", chromium.WIDTHS)
def test_it_fits_and_is_silent(browser, page, width, scheme):
    browser.open(page, width, scheme)
    assert browser.run("innerWidth") == width
    assert browser.run("document.scrollingElement.scrollWidth") <= width
    sticking_out = """[...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll, dialog")
        && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"""
    assert browser.run(sticking_out) == []
    images = browser.run(
        "[...document.querySelectorAll('main img')].map((i) => [i.naturalWidth, i.width, i.alt])"
    )
    assert len(images) == 14
    for natural, shown, alt in images:
        assert natural > 0
        assert shown >= 0.5 * natural  # smaller, and its letters could not be read
        assert len(alt) > 40
    light = browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(253, 253, 252)"
    assert light == (scheme == "light")
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]


def test_a_heading_sorts_and_the_third_time_restores(browser, page):
    browser.open(page, 1280, "light")
    before = browser.run(f"({COLUMN})(0)")
    state = f"{BUTTON}[4].parentElement.ariaSort"
    browser.run(f"{BUTTON}[4].focus()")
    browser.press("Enter", 13)
    rising = [float(text.split()[0]) for text in browser.run(f"({COLUMN})(4)")]
    assert rising == sorted(rising)
    assert browser.run(state) == "ascending"
    browser.run(f"{BUTTON}[4].click()")
    assert [float(text.split()[0]) for text in browser.run(f"({COLUMN})(4)")] == rising[::-1]
    assert browser.run(state) == "descending"
    browser.run(f"{BUTTON}[0].click()")
    assert browser.run(f"({COLUMN})(0)") == sorted(before)
    assert browser.run(state) == "none"
    browser.run(f"{BUTTON}[0].click(); {BUTTON}[0].click()")
    assert browser.run(f"({COLUMN})(0)") == before
    sections = 'document.querySelectorAll("#results table")[0].tBodies'
    assert browser.run(f"[...{sections}].map((body) => body.rows.length)") == [3, 1]


@pytest.mark.parametrize("width", chromium.WIDTHS)
def test_a_figure_enlarges_and_escape_closes_it(browser, page, width):
    browser.open(page, width, "dark")
    browser.run('document.querySelector(".enlarge").focus()')
    browser.press("Enter", 13)
    assert browser.run("document.querySelector('dialog').open")
    image = "document.querySelector('dialog img')"
    shown, natural, alt = browser.run(f"[{image}.width, {image}.naturalWidth, {image}.alt]")
    assert shown >= natural > 1000
    assert alt.startswith("Reliability diagrams")
    browser.press("Escape", 27)
    assert not browser.run("document.querySelector('dialog').open")
    browser.run("document.querySelector('.enlarge').click()")
    browser.run("document.querySelector('dialog button').click()")
    assert not browser.run("document.querySelector('dialog').open")
    assert browser.complaints() == []


def test_it_prints(browser, page):
    browser.open(page, 1280, "dark")
    assert browser.print().startswith(b"%PDF")
    assert browser.run("[...document.querySelectorAll('details')].every((details) => details.open)")
