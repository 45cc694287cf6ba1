import re
from html.parser import HTMLParser

import pytest

from calmoe.errors import InputError
from calmoe.render.drawing import new_figure
from calmoe.render.grid import Grid, Heading, count, estimate, label
from calmoe.render.page import Code, Page, Picture, Point, Section

NASTY = """<script>alert('x')</script> & "quoted" </title>"""
VOID = {"meta", "img"}


def png(tmp_path, width=2.0, height=1.0):
    figure = new_figure(width, height)
    figure.savefig(tmp_path / "figure.png", metadata={"Software": None})
    return (tmp_path / "figure.png").read_bytes()


def grid(text="Vanilla MoE", caption="ECE by method"):
    headings = Heading("Method", ("method",)), Heading("ECE", ("ece", "ece_se")), Heading("Seeds", ("seeds",))
    first = label(text, "vanilla"), estimate(1 / 3, 0.001, bold=True), count(3)
    second = label("Robust MoE", "robust"), estimate(float("nan"), float("nan")), label("1–3", "1-3")
    return Grid(caption, headings, ((first,), (second,)))


def page(picture, text="plain"):
    return Page(
        title=text,
        subtitle=text,
        summary=[Point(text, text, [text, text])],
        sections=[
            Section(
                heading=text, how=text, tables=[grid(text, text)], figures=[picture, picture], notes=[text]
            ),
            Section(heading=text),
        ],
        facts={text: text, "command": Code(text), "settings": grid(text, text)},
        footer=text,
    )


class Reader(HTMLParser):
    """Every element with its attributes, and the text; elements must close in order."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.text, self.open = [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def picture(tmp_path):
    return Picture("figure", png(tmp_path), "What it shows", "A caption")


def test_all_that_is_given_is_escaped(picture):
    nasty = Reader(page(picture._replace(alt=NASTY, caption=NASTY), NASTY).html())
    plain = Reader(page(picture, "plain").html())
    assert [tag for tag, _ in nasty.elements] == [tag for tag, _ in plain.elements]
    assert len(nasty.all("script")) == 1
    assert {image["alt"] for image in nasty.all("img")} == {NASTY, ""}
    assert nasty.text.count(NASTY) == plain.text.count("plain") + plain.text.count("A caption")


def test_the_page_asks_for_nothing(picture):
    html = page(picture).html()
    assert not re.search(r"https?:|url\(|@import|//[a-z]+\.", html)
    for _, attributes in Reader(html).elements:
        assert attributes.get("src", "data:").startswith("data:")
        assert attributes.get("href", "#").startswith("#")
    (policy,) = [m["content"] for m in Reader(html).all("meta") if "http-equiv" in m]
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_the_same_content_is_the_same_bytes(picture):
    assert page(picture).html() == page(picture).html()


def test_links_lead_somewhere_and_no_anchor_is_there_twice(picture):
    found = Reader(page(picture, "Summary").html())  # as the template's own heading is called
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    links = [attributes["href"] for attributes in found.all("a")]
    assert len(links) == 4
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_figures_have_their_size_and_words(picture):
    image = Reader(page(picture).html()).all("img")[0]
    assert (image["width"], image["height"], image["alt"]) == ("360", "180", "What it shows")


def test_a_figure_that_is_no_png_is_refused(picture):
    with pytest.raises(InputError, match="the figure 'figure' is not a PNG file"):
        page(picture._replace(png=b"<svg/>")).html()


def test_a_table_keeps_its_sections_and_its_numbers_in_full():
    html = grid().html()
    found = Reader(html)
    assert len(found.all("tbody")) == 2
    values = [cell.get("data-value") for cell in found.all("td")]
    assert values == [repr(1 / 3), "3", "", None]  # a range of seeds sorts by its text
    assert "<strong>0.333<small> ± 0.001</small></strong>" in html
    assert [heading["aria-sort"] for heading in found.all("th") if heading["scope"] == "col"] == ["none"] * 3
    assert [heading.get("class") for heading in found.all("th")][:3] == [None, "number", "number"]


def test_a_table_among_the_facts_is_folded_away(picture):
    html = page(picture).html()
    assert re.search(r"<details>\s*<summary>settings</summary>\s*<div class=\"scroll\".*?<table>", html, re.S)
    assert "<code>plain</code>" in html


def test_an_empty_page_is_a_page():
    assert "<nav" in Page(title="Nothing").html()
    assert Reader(Page(title="Nothing").html()).all("section") == []


def test_a_section_shuts_its_long_tables_away_behind_its_figures():
    grid = Grid("Every point", (Heading("Name", ("name",)),), (((label("a < b", "a"),),),))
    html = Page(title="T", sections=[Section(heading="Long", folded=[grid])]).html()
    inside = html[html.index('<h2 id="long-heading">') :]
    assert re.search(r"<details>\s*<summary>Every point</summary>.*?<table>.*?a &lt; b", inside, re.S)
