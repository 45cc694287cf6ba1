"""Links in Markdown lead somewhere, on GitHub and on the site; what turns and checks them does so."""

import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
import built_links  # noqa: E402
import outside  # noqa: E402

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for page in sorted(DOCS.rglob("*.md")) if not {"_build", "repository"} & set(page.parts)),
    *sorted((ROOT / "results").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "studies").glob("*.md")),
]


def prose(page):
    return outside.FENCE.sub("", page.read_text())


def places(page):
    """The anchors that GitHub and MyST give a page's headings."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, place in re.findall(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)", prose(page)):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}, which does not exist"
        if place and file.suffix == ".md":
            assert place in places(file), f"{page.name}: {file.name} has no heading for #{place}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_addresses_are_well_formed(page):
    for address in re.findall(r"https?://[^\s)>\]\"'`|]+", prose(page)):
        parts = urlsplit(address.rstrip(".,;:"))
        assert re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", parts.netloc), address


def test_every_page_has_its_place_in_the_navigation():
    trees = {}
    for page in DOCS.rglob("*.md"):
        for body in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
            lines = [line for line in body.splitlines() if line and not line.startswith(":")]
            names = [re.sub(r".*<(.*)>", r"\1", line) for line in lines]
            trees |= {(page.parent / name).resolve(): page for name in names}
    pages = {page.with_suffix("") for page in PAGES if DOCS in page.parents} - {DOCS / "index"}
    assert pages - set(trees) == set()
    for place, page in trees.items():
        there = place if outside.COPIES not in place.parents else ROOT / place.relative_to(outside.COPIES)
        assert there.with_suffix(".md").exists(), f"{page.name} lists {place.name}, which does not exist"


def test_pages_outside_are_found_and_their_links_turned(tmp_path, monkeypatch):
    docs = tmp_path / "docs"
    for name, text in {
        "docs/page.md": "[results](../results/README.md#all) [own](other.md) [folder](../results)",
        "docs/other.md": "# Other",
        "results/README.md": "![a figure](figure.png) [back](../docs/page.md) [more](deep/more.md)",
        "results/deep/more.md": "nothing links on",
        "results/figure.png": "",
        "unlinked.md": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name, value in {"ROOT": tmp_path, "DOCS": docs, "COPIES": docs / "repository", "ALWAYS": ()}.items():
        monkeypatch.setattr(outside, name, value)
    outside.copy()
    copies = docs / "repository" / "results"
    assert sorted(file.name for file in copies.rglob("*")) == ["README.md", "deep", "more.md"]
    assert outside.turned((docs / "page.md").read_text(), docs, docs) == (
        "[results](repository/results/README.md#all) [own](other.md) folder"
    )
    for target in re.findall(r"\]\(([^)]*)\)", (copies / "README.md").read_text()):
        assert (copies / target).resolve().exists()


def test_dead_links_of_a_built_site_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#there">x</a> <a href="#me" id="me">y</a>')
    (tmp_path / "b.html").write_text('<p id="there"><a href="https://example.org">z</a></p>')
    assert built_links.dead_links(tmp_path) == []
    (tmp_path / "b.html").write_text('<img src="gone.png"><a href="a.html#nowhere">z</a>')
    assert built_links.dead_links(tmp_path) == [
        "a.html: b.html#there",
        "b.html: gone.png",
        "b.html: a.html#nowhere",
    ]
