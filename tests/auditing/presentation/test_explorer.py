"""The shift explorer in headless Chromium: drag, keyboard, worst case and reset give Python's numbers."""

import json
from dataclasses import replace

import numpy as np
import pytest

import calmoe
import chromium
from calmoe import worlds
from calmoe.auditing.presentation.shift_explorer import script_json
from haste import hastily, unrendered

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u2028"
browsers = pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def report():
    given = worlds.cancelling(0, experts=4, delta=0.15).sample(2500, seed=0)
    site = np.random.default_rng(7).choice([HOSTILE, "north", "south"], 2500)
    with hastily():
        return calmoe.audit(replace(given, groups={"site": site}))


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    with unrendered():
        return report.save(tmp_path_factory.mktemp("audit"))


def numbers(browser):
    script = """({ece: Number(document.querySelector('[data-number="ece"]').dataset.value),
        accuracy: Number(document.querySelector('[data-number="accuracy"]').dataset.value),
        by_chance: Number(document.querySelector('[data-number="by_chance"]').dataset.value),
        kl: Number(document.getElementById("explorer").dataset.kl),
        reach: Number(document.getElementById("explorer").dataset.reach)})"""
    return browser.run(script)


def settings(browser, report):
    now = [[0.0] * len(factor.levels) for factor in report.explorer.factors]
    script = """[...document.querySelectorAll("[data-factor]")].map(
        (i) => [Number(i.dataset.factor), Number(i.dataset.level), Number(i.value)])"""
    for factor, level, value in browser.run(script):
        now[factor][level] = value
    return tuple(map(tuple, now))


def agree(browser, report):
    """The page shows what Python computes for the sliders as they stand."""
    budget = report.explorer.budgets[int(browser.run("document.getElementById('budget').value"))]
    mix = report.explorer.cells.mix(settings(browser, report), budget)
    for name, value in numbers(browser).items():
        assert value == pytest.approx(getattr(mix, name), abs=1e-6), name
    return mix


def drag(browser, name, share):
    """Drag a slider's thumb to a share of its width, as a hand does."""
    browser.run(f"document.getElementById('{name}').closest('details')?.setAttribute('open', '')")
    browser.run(f"document.getElementById('{name}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = browser.run(
        f"(({{x, y, width, height}}) => [x, y, width, height])"
        f"(document.getElementById('{name}').getBoundingClientRect())"
    )
    x, y, width, height = box
    at = {"y": y + height / 2, "button": "left", "clickCount": 1}
    browser.call("Input.dispatchMouseEvent", type="mousePressed", x=x + width / 2, **at)
    for part in np.linspace(0.5, share, 5):
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + width * part, buttons=1, **at)
    browser.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + width * share, **at)


@browsers
@pytest.mark.slow
@pytest.mark.parametrize("width", chromium.WIDTHS)
def test_it_follows_a_hand(browser, page, report, width):
    browser.open(page, width, "light")
    before = agree(browser, report)
    assert before.kl == 0
    drag(browser, "tilt-1-1", 0.95)
    moved = agree(browser, report)
    assert moved.kl > 0.01
    assert settings(browser, report)[1][1] > 1
    shown = browser.run("document.getElementById('mix-said').textContent")
    assert shown == report.explorer.describe(moved)
    drag(browser, "budget", 0.999)
    assert agree(browser, report).kl >= moved.kl
    browser.run("document.getElementById('reset').click()")
    assert agree(browser, report).ece == pytest.approx(before.ece, abs=1e-12)
    assert not np.concatenate(settings(browser, report)).any()
    assert browser.complaints() == []


@browsers
@pytest.mark.slow
def test_the_worst_case_is_pythons_for_every_size_of_shift(browser, page, report):
    browser.open(page, 1280, "dark")
    explorer = report.explorer
    browser.run("document.getElementById('worst').click()")
    for i, (budget, worst) in enumerate(zip(explorer.budgets, explorer.worst, strict=True)):
        browser.run(
            f"(() => {{ const b = document.getElementById('budget'); b.value = {i};"
            " b.dispatchEvent(new Event('input')); })()"
        )
        mix = explorer.cells.mix(worst, budget)
        assert settings(browser, report) == worst
        assert numbers(browser)["ece"] == pytest.approx(mix.ece, abs=1e-6)
        assert browser.run("document.getElementById('mix-said').textContent") == explorer.describe(mix)
    marks = browser.run(
        "[...document.querySelectorAll('#explorer svg .mark')].filter((m) => m.r.baseVal.value).length"
    )
    assert marks >= (mix.share > 1e-9).sum()


@browsers
@pytest.mark.slow
def test_the_keyboard_is_enough(browser, page, report):
    browser.open(page, 390, "light")
    browser.run("document.getElementById('budget').focus()")
    start = int(browser.run("document.getElementById('budget').value"))
    browser.press("ArrowRight", 39)
    assert int(browser.run("document.getElementById('budget').value")) == start + 1
    browser.press("Tab", 9)
    assert browser.run("document.activeElement.id") == "worst"
    browser.press("Enter", 13)
    assert agree(browser, report).ece > 0.03
    browser.press("Tab", 9)
    browser.press("Enter", 13)
    assert agree(browser, report).kl == 0
    browser.run("document.getElementById('tilt-0-0').focus()")
    browser.press("ArrowRight", 39)
    assert settings(browser, report)[0][0] == pytest.approx(0.1)
    agree(browser, report)
    labelled = """[...document.querySelectorAll('input[type=range]')].every((i) => i.labels.length === 1
        && i.getAttribute('aria-valuetext'))"""
    assert browser.run(labelled)
    assert browser.run("document.querySelectorAll('#explorer [aria-live=polite]').length") >= 2


@browsers
@pytest.mark.slow
@pytest.mark.parametrize("width", chromium.WIDTHS)
def test_words_explain_themselves(browser, page, width):
    browser.open(page, width, "light")
    count = browser.run("document.querySelectorAll('.term').length")
    assert count > 10
    seen = """(i) => { const term = document.querySelectorAll('.term')[i];
        const button = term.firstElementChild;
        const details = term.closest('details'); if (details) details.open = true; button.focus();
        const box = term.lastElementChild.getBoundingClientRect();
        return [box.height > 0, box.right <= innerWidth, box.left >= 0,
            document.getElementById(button.getAttribute('aria-describedby')) === term.lastElementChild]; }"""
    for i in range(0, count, 3):
        assert browser.run(f"({seen})({i})") == [True, True, True, True], i
    browser.press("Escape", 27)
    assert browser.run("document.querySelectorAll('.term.closed').length") == 1


@browsers
@pytest.mark.slow
def test_the_first_screen_answers(browser, page):
    """At 1280 x 900 all of it is on the first screen; on a phone verdict, skill and what to do are."""
    for width, height, wanted in (
        (1280, 900, ".verdict h2, .skill, .verdict .diagram, .answers, .action"),
        (390, 844, ".verdict h2, .skill, .action"),
    ):
        browser.open(page, width, "light", height)
        lows = browser.run(
            f"[...document.querySelectorAll('{wanted}')].map((e) => e.getBoundingClientRect().bottom)"
        )
        assert len(lows) == len(wanted.split(","))
        assert max(lows) <= height
    text = browser.run("document.getElementById('opening').innerText")
    assert not any("\u0370" <= character <= "\u03ff" for character in text)


@browsers
@pytest.mark.slow
def test_a_hostile_group_is_only_text(browser, page):
    browser.open(page, 1280, "light")
    assert browser.run("document.querySelectorAll('img[src=x]').length") == 0
    assert browser.run(
        "[...document.querySelectorAll('label')].some((l) => l.textContent.includes('<img src=x'))"
    )
    assert browser.complaints() == []


def test_json_cannot_leave_its_script():
    text = script_json({"name": HOSTILE})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"name": HOSTILE}
