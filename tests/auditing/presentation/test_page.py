"""The audit's page in headless Chromium: two widths, light and dark."""

import re

import pytest

import calmoe
import chromium
from calmoe import worlds
from calmoe.auditing.audit_report import SECTIONS
from calmoe.auditing.presentation.page import page as fill
from haste import hastily


@pytest.fixture(scope="module")
def report():
    world = worlds.cancelling(0, experts=4)
    with hastily():
        return calmoe.audit(world.sample(3000, seed=0), target=world.sample(500, seed=1))


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    return report.save(tmp_path_factory.mktemp("audit"))


def test_every_section_with_a_figure_teaches_how_to_read_it_in_two_sentences(report):
    one = b"\x89PNG\r\n\x1a\n" + bytes(16)
    pictures = {name: (one, drawn.alt) for name, drawn in report.figures().items()}
    filled = fill(report, SECTIONS, pictures, {})
    assert sum(len(section.figures) for section in filled.sections) == len(report.figures())
    for section in filled.sections:
        assert section.how
        for figure in section.figures:
            assert len(figure.alt) > 40
            assert len(re.findall(r"\.(?= |$)", figure.caption)) == 2, figure.caption


@pytest.mark.slow
@pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("scheme", chromium.SCHEMES)
@pytest.mark.parametrize("width", chromium.WIDTHS)
def test_it_fits_and_is_silent(report, browser, page, width, scheme):
    browser.open(page, width, scheme)
    browser.run("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert browser.run("document.scrollingElement.scrollWidth") <= width
    sticking_out = """[...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll, dialog")
        && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"""
    assert browser.run(sticking_out) == []
    images = browser.run(
        "[...document.querySelectorAll('main img')].map((i) => [i.naturalWidth, i.width, i.alt])"
    )
    assert len(images) == len(report.figures())
    for natural, shown, alt in images:
        assert natural > 0
        assert shown >= 0.4 * natural
        assert len(alt) > 40
    assert browser.complaints() == []
    assert browser.requests() == [page.resolve().as_uri()]
