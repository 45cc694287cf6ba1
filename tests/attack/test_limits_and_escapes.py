"""What is beyond reason is refused before anything is built; text from files stays text where it goes."""

import csv
import io
import resource
import unicodedata

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from calmoe.arrays import MOST_BINS
from calmoe.auditing import audit
from calmoe.errors import InputError
from calmoe.escaping import latex, markdown, spreadsheet, visible
from calmoe.experiments.dry_run import show_plan
from calmoe.experiments.runner import run
from calmoe.experiments.search_space import MOST_VALUES, parse_values
from calmoe.experiments.spec import MOST_SEEDS, load_preset, parse_seeds, with_settings
from calmoe.experiments.sweep import make_sweep
from calmoe.predictions import Predictions
from calmoe.render.console import say_notes
from calmoe.render.grid import Grid, Heading, estimate, label, signed
from calmoe.training import check_model
from calmoe.training.building import MOST_PARAMETERS
from command_line import calmoe, refused
from strategies import random_output

ESCAPES = "\x1b[2J\x9b31m\u202e\u2066\r\n\x07\x00\u2028\x85\ud800\udce9"
FORMULAS = ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1"]
text = st.text(st.characters(exclude_categories=[]), max_size=30)
names = text | st.text("|\\`*_~<>[]()!&#;-+=.$1a \n\r\t", max_size=20)


# --- limits


@pytest.fixture
def no_large_arrays():
    """A test that takes more than 300 MB on top of what is there fails."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


@pytest.fixture
def predictions(tmp_path):
    output = random_output(0, n=40, classes=3, experts=2, dtype=torch.float32)
    found = Predictions(output=output, labels=torch.arange(40) % 3, groups={}, metadata={})
    found.save(tmp_path / "p.safetensors")
    return found


def test_an_audit_in_too_many_bins_is_refused(tmp_path, predictions, no_large_arrays):
    for bins in (100_000, MOST_BINS + 1, MOST_BINS):
        assert "bins" in refused("audit", tmp_path / "p.safetensors", "--bins", bins)
    for bins in (100_000, None, 15.0):
        with pytest.raises(InputError, match="bins must be"):
            audit(predictions, bins=bins)


@pytest.mark.parametrize(
    "settings",
    [
        ["experts=1000000000"],
        ["experts=10001"],
        ["router_hidden=1000000000"],
        ["hidden=[1000000000]"],
        [f"hidden={[1] * 101}"],
        ["batch=1000000001"],
        ["experts=10000", "router_hidden=100000", "hidden=[100000]"],
    ],
)
def test_a_model_beyond_reason_is_refused_before_it_is_built(tmp_path, settings, no_large_arrays):
    given = [word for setting in settings for word in ("--set", setting)]
    for how in ([], ["--dry-run"]):
        refused("run", "digits", *given, "--out", tmp_path / "run", *how)
    assert not (tmp_path / "run").exists()


def test_classes_count_among_a_models_parameters(no_large_arrays):
    settings = with_settings(load_preset("digits"), ["experts=10000"]).model
    check_model(settings, (1, 8, 8), ["mixture"], num_classes=10)
    with pytest.raises(InputError, match=f"at most {MOST_PARAMETERS:,}"):
        check_model(settings, (1, 8, 8), ["mixture"], num_classes=10_000)


def test_too_many_seeds_are_refused_however_they_are_written():
    assert len(parse_seeds(f"0-{MOST_SEEDS - 1}")) == MOST_SEEDS
    listed, half = ",".join(map(str, range(100_000))), MOST_SEEDS // 2
    for written in (listed, f"0-{MOST_SEEDS - 1},{MOST_SEEDS}", f"0-{half},{half}-{MOST_SEEDS}"):
        with pytest.raises(InputError, match="seeds"):
            parse_seeds(written)
    with pytest.raises(InputError, match="seeds"):
        with_settings(load_preset("digits"), [f"seeds=[{listed}]"])
    assert len(refused("run", "digits", "--seeds", listed, "--dry-run")) < 300
    assert len(refused("run", "digits", "--seeds", "x" * 100_000, "--dry-run")) < 500


def test_too_many_values_and_too_many_models_are_refused(tmp_path):
    with pytest.raises(InputError, match="values"):
        parse_values("eta", ",".join(map(str, range(MOST_VALUES + 1))), epochs=50)
    spec = with_settings(load_preset("digits"), [f"seeds={list(range(200))}"])
    many = make_sweep("eta", tuple(range(MOST_VALUES)))
    for ask in (run, show_plan):
        with pytest.raises(InputError, match="models"):
            ask(spec, tmp_path / "run", sweep=many)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "value", [f"epochs={'9' * 5000}", f"hidden={'[' * 5000}", f"routing=top{'9' * 5000}"]
)
def test_numbers_of_thousands_of_digits_and_lists_without_end_are_refused(value):
    refused("run", "digits", "--set", value, "--dry-run")
    refused("audit", "p.csv", "--of", "9" * 5000)


@pytest.mark.parametrize("setting", ["gamma=1e300", "eta=1e300"])
def test_bounds_and_tilts_of_any_size_train(tmp_path, setting):
    small = ["--seeds", "42", "--set", "epochs=2", "--set", "warmup=1", "--set", "hidden=[8]"]
    method = "cvar" if setting.startswith("gamma") else "robust,entropic"
    result = calmoe("run", "digits", "--methods", method, *small, "--set", setting, "--out", tmp_path)
    assert result.exit_code == 0, (result.output, result.exception)


# --- terminals


def controls(line):
    return [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


@given(text)
@example(ESCAPES)
def test_visible_text_has_nothing_that_steers_a_terminal(name):
    shown = visible(name)
    assert not controls(shown)
    assert visible(shown) == shown
    shown.encode()
    if not controls(name) and name.isprintable():
        assert shown == name


def test_names_of_files_reach_the_terminal_escaped(tmp_path):
    name = "\x1b[31mred\u202e\x9b2J[bold].csv"
    line = refused("audit", tmp_path / name)
    assert r"\x1b[31mred\u202e\x9b2J[bold].csv" in line
    assert not controls(line.rstrip("\n"))


def test_cells_reach_the_terminal_escaped(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("prob_0,prob_1,label\n0.5,0.5,\x1b]0;owned\x07\n0.5,0.5,1\n")
    assert not controls(refused("audit", path).rstrip("\n"))


def printed(show):
    console = Console(file=io.StringIO(), width=200, highlight=False)
    show(console)
    return console.file.getvalue()


def test_notes_are_printed_as_they_are(tmp_path):
    shown = printed(lambda console: say_notes(["[red]x[/red] :bomb: \x1b[2J a\nb"], console))
    assert shown == "note: [red]x[/red] :bomb: \\x1b[2J a\\nb\n"


# --- tables


def table(name):
    """A table with the name everywhere that a file's text can stand."""
    return Grid(
        name,
        (Heading(name, (name,), name), Heading("ECE", ("ece", "ece_se")), Heading("d", ("d",))),
        (((label(name, name), estimate(-0.5, 0.1, bold=True), signed(-1.5)),),),
    )


@given(names)
@example(ESCAPES)
@example("[red]x[/red]")
def test_a_table_on_a_terminal_shows_text_only(name):
    shown = printed(lambda console: console.print(table(name).rich()))
    assert not controls(shown.replace("\n", ""))


@given(names)
@example("a|b\n| c | d |")
@example("\\|")
@example("[x](javascript:alert(1)) ![y](z) <img src=x> `c` **b** __i__ ~~s~~ &lt; # h")
def test_a_markdown_cell_is_its_text_and_nothing_else(name):
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for whole in (f"x {name}", f"{name} x"):
        tokens = parser.parse(table(whole).markdown())
        cells = [token for token in tokens if token.type == "inline"]
        assert len(cells) == 1 + 3 + 3  # the caption, the headings, the row
        for cell in (cells[0], cells[4]):
            assert {child.type for child in cell.children} <= {"text", "text_special"}
            assert "".join(child.content for child in cell.children) == visible(whole).strip()


@given(names)
@example("# heading")
@example("- item")
@example("1. item")
@example("> quote")
@example("---")
@example("===")
@example("[x]: http://x")
def test_a_markdown_caption_is_one_paragraph(name):
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown(name))
    assert [token.type for token in tokens] in (["paragraph_open", "inline", "paragraph_close"], [])


@given(names | st.sampled_from(FORMULAS))
def test_csv_gives_the_text_back_up_to_the_guard(name):
    head, row = csv.reader(io.StringIO(table(name).csv(), newline=""))
    writable = name.encode(errors="backslashreplace").decode()
    for cell in (head[0], row[0]):
        assert cell in (writable, f"'{writable}")
    assert row[1:] == ["-0.5", "0.1", "-1.5"]


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_a_csv_is_a_formula(formula):
    head, row = csv.reader(io.StringIO(table(formula).csv(), newline=""))
    assert (head[0], row[0]) == (f"'{formula}", f"'{formula}")


@pytest.mark.parametrize("number", ["-0.5", "+1", "-1e-3", "-7"])
def test_a_number_stays_a_number(number):
    assert spreadsheet(number) == number


@given(names)
@example("\\input{/etc/passwd}")
@example("a\n\nb % \\end{table}")
@example("[1ex]")
def test_latex_has_no_command_of_a_files(name):
    escaped = latex(name)
    assert not escaped.startswith(("[", "*"))
    for ours in (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}", r"\$", r"\pm", r"\eta"):
        escaped = escaped.replace(ours, "")
    for symbol in "&%#_{}":
        escaped = escaped.replace(f"\\{symbol}", "")
    assert "\\" not in escaped.replace(r"\Gamma", "").replace(r"\lceil", "").replace(r"\rceil", "")
    assert not set("%#&_~^") & set(escaped)
    assert not controls(escaped)


@pytest.mark.parametrize(
    "plain",
    [
        "pacs-sketch",
        "mine_own",
        "art_painting",
        "ECE+TS",
        "hidden=[16, 8]",
        "[−0.1, +0.2]",
        "50 % ± x",
        "+0.005",
    ],
)
def test_ordinary_text_stays_as_it_was(plain):
    assert visible(plain) == spreadsheet(plain).removeprefix("'") == markdown(plain) == plain


def test_a_page_holds_nothing_that_steers_a_terminal():
    from calmoe.render.page import Page, Point

    page = Page(title="a\x1b[2Jb", summary=[Point("x", "one\ntwo \u202e three")], sections=[])
    html = page.html()
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "one\ntwo" in html
