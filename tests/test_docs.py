"""Every Python block in README and docs runs; the blocks of a page share one namespace, top to bottom."""

import re
from pathlib import Path

import pytest

from calmoe.experiments.spec import RunSpec
from calmoe.training.settings import ModelSettings, TrainingSettings

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = sorted(
    [*(ROOT / "results").rglob("*.md"), *(ROOT / "studies").glob("*.md"), *(ROOT / "tests").rglob("*.md")]
)


def blocks(page):
    text = page.read_text()
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text[: match.start()].count("\n") + 2, match[1]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("page", [p for p in PAGES if any(True for _ in blocks(p))], ids=lambda p: p.name)
@pytest.mark.usefixtures("forget")
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for line, code in blocks(page):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_every_setting_is_explained():
    table = (ROOT / "docs" / "run.md").read_text().partition("## Settings")[2].partition("## ")[0]
    settings = {
        name for group in (RunSpec, ModelSettings, TrainingSettings) for name in group.__annotations__
    }
    assert settings - {name for name in settings if f"`{name}`" in table} == {"dataset", "model", "training"}
