"""Every Python block in README, docs and studies runs; a page's blocks share one namespace, top to bottom."""

import re
from pathlib import Path

import pytest

from calmoe.experiments.spec import RunSpec
from calmoe.training.settings import ModelSettings, TrainingSettings

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "studies").glob("*.md"))]


def blocks(page):
    text = page.read_text()
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text[: match.start()].count("\n") + 2, match[1]


@pytest.mark.usefixtures("hasty", "quick")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(True for _ in blocks(p))], ids=lambda p: str(p.relative_to(ROOT))
)
@pytest.mark.usefixtures("forget")
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for line, code in blocks(page):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_every_setting_is_explained():
    table = (ROOT / "studies" / "running.md").read_text().partition("## Settings")[2].partition("## ")[0]
    settings = {
        name for group in (RunSpec, ModelSettings, TrainingSettings) for name in group.__annotations__
    }
    assert settings - {name for name in settings if f"`{name}`" in table} == {"dataset", "model", "training"}
