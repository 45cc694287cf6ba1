"""The audit's page in headless Chromium: two widths, light and dark."""

import inspect
import re
from dataclasses import make_dataclass
from pathlib import Path

import pytest

import calmoe
import chromium
from calmoe import worlds
from calmoe.auditing import audit_report
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


def check_page(report):
    """Every section asks a question, and says in two sentences how to read its figures; the sections."""
    one = b"\x89PNG\r\n\x1a\n" + bytes(16)
    pictures = {name: (one, drawn.alt) for name, drawn in report.figures().items()}
    filled = fill(report, audit_report.SECTIONS, pictures, {})
    assert sum(len(section.figures) for section in filled.sections) == len(report.figures())
    for section in filled.sections:
        assert section.how
        for figure in section.figures:
            assert len(figure.alt) > 40
            assert len(re.findall(r"\.(?= |$)", figure.caption)) == 2, figure.caption
    return filled.sections


def test_every_section_with_a_figure_teaches_how_to_read_it_in_two_sentences(report):
    check_page(report)


def test_the_maintainers_example_is_such_a_section(monkeypatch):
    """That of studies/maintaining.md, in a file of its own, in `SECTIONS`, with its field in the report."""
    page = Path(__file__).parents[3] / "studies" / "maintaining.md"
    text, example = page.read_text().partition("### An audit section")[2], {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], example)
    (field,) = re.findall(r"`(\w+: \w+)`", text.partition("\n## ")[0])
    own = make_dataclass(
        "Own", [field.split(": ")], bases=(calmoe.AuditReport,), frozen=True, kw_only=True, repr=False
    )
    monkeypatch.setattr(audit_report, "SECTIONS", (*audit_report.SECTIONS, example["SECTION"]))
    monkeypatch.setattr(audit_report, "AuditReport", own)
    with hastily():
        report = calmoe.audit(worlds.cancelling(0).sample(400, seed=0))
    assert report.to_dict()["spread"] > 0
    assert "Spread" in [section.heading for section in check_page(report)]
    for function in (example["compute"], example["page"]):  # as mypy asks of calmoe's own
        signature = inspect.signature(function)
        annotations = [parameter.annotation for parameter in signature.parameters.values()]
        assert inspect.Signature.empty not in (*annotations, signature.return_annotation)


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
