"""The tutorials' cells run, top to bottom, and draw their figures; `make docs` runs them in Jupyter."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
TUTORIALS = [page for page in sorted(FOLDER.glob("*.md")) if page.name != "index.md"]


def cells(page):
    """Each cell's first line and code."""
    text = page.read_text()
    for match in re.finditer(r"^```\{code-cell\}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text[: match.start()].count("\n") + 2, match[1]


@pytest.mark.usefixtures("hasty", "quick")
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_cells_run_and_draw(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)
    if page.stem == "text":
        pytest.importorskip("transformers", reason="the text extra is not installed")
    namespace = {"__name__": "__main__"}
    try:
        for line, code in cells(page):
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
        assert plt.get_fignums()
    finally:
        plt.close("all")
