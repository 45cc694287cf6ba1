"""The entry point: a list of studies, help with an example each, and one-line errors."""

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from studies.__main__ import main
from studies.app import app

ROOT = Path(__file__).parents[2]
NAMES = [command.name for command in app.registered_commands]


def studies(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_without_a_name_the_studies_are_listed():
    result = studies()
    assert result.exit_code == 0
    listed = result.stdout.partition("Commands:")[2].splitlines()[1:]
    assert [line.split()[0] for line in listed] == NAMES
    assert all(line.endswith("?") for line in listed)  # each a question, whole


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example_that_names_the_study(name):
    result = studies(name, "--help")
    assert result.exit_code == 0
    assert f"Example: python -m studies {name}" in result.stdout


PAGES = [
    ROOT / "README.md",
    *(page for room in ("docs", "benchmarks", "results", "studies") for page in (ROOT / room).rglob("*.md")),
]


def test_pages_name_studies_and_folders_that_are_there():
    """Commands such as `python -m studies claims results/pacs`, also where a line breaks in them."""
    commands = [
        command
        for page in PAGES
        for command in re.findall(r"python -m\s+studies ([a-z-]+)([^`\n]*)", page.read_text())
    ]
    assert {name for name, _ in commands} == set(NAMES)
    for name, words in commands:
        for path in re.findall(r"results/[\w/.-]+", words):
            assert (ROOT / path).exists(), f"{name} {words}"


def test_no_page_names_a_script_under_results():
    for page in PAGES:
        assert not re.search(r"results/\S*\.py\b", page.read_text()), page


def test_a_study_prints_its_tables():
    result = studies("jumps", str(ROOT / "results/pacs/jumps.jsonl"))
    assert result.exit_code == 0, result.output
    assert "| Robust MoE | 12 |" in result.stdout


def test_what_is_wrong_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["studies", "claims", "nowhere"])
    with pytest.raises(SystemExit, match=r"^2$"):
        main()
    assert re.fullmatch(r"error: there is no nowhere/results\.jsonl: [^\n]*\n", capsys.readouterr().err)
