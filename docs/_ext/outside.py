"""Markdown outside of docs/ that the docs link to becomes pages of the site, under repository/.

Links in the sources are those that GitHub follows. Before a build the linked files are copied into
docs/repository/ (git ignores it), and links to them are turned there as each page is read.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
COPIES = DOCS / "repository"
ALWAYS = (ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md")
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def targets(text: str, home: Path) -> Iterator[Path]:
    """The files of this repository that a page in the folder `home` links to."""
    for match in LINK.finditer(FENCE.sub("", text)):
        yield (home / match[2]).resolve()


def is_outside(file: Path) -> bool:
    """Whether it is a Markdown file of the repository, but not of docs/."""
    return file.suffix == ".md" and file.is_file() and DOCS not in file.parents and ROOT in file.parents


def linked() -> list[Path]:
    """All such files that docs/ leads to, from link to link."""
    waiting = [*sorted(DOCS.rglob("*.md")), *ALWAYS]
    waiting = [page for page in waiting if COPIES not in page.parents]
    seen: list[Path] = []
    for page in waiting:
        if is_outside(page):
            seen.append(page)
        more = targets(page.read_text(encoding="utf-8"), page.parent)
        waiting += [file for file in dict.fromkeys(more) if is_outside(file) and file not in waiting]
    return seen


def place(file: Path) -> Path:
    """Where the site has a file."""
    return COPIES / file.relative_to(ROOT) if is_outside(file) else file


def turned(text: str, home: Path, new_home: Path) -> str:
    """The text with links as they lead from `new_home`; a link to a folder becomes plain words."""

    def turn(match: re.Match[str]) -> str:
        words, target, anchor = match[1], (home / match[2]).resolve(), match[3] or ""
        if not target.exists():
            return match[0]
        if target.is_dir():
            return words[1:-1]
        return f"{words}({os.path.relpath(place(target), new_home)}{anchor})"

    parts = re.split(f"({FENCE.pattern})", text, flags=FENCE.flags)
    return "".join(part if part.startswith("```") else LINK.sub(turn, part) for part in parts)


def copy(*_: Any) -> None:
    """Write the copies; what did not change is not written anew, so that its page is not built anew."""
    for file in linked():
        copy = place(file)
        text = "---\norphan: true\n---\n" + turned(file.read_text(encoding="utf-8"), file.parent, copy.parent)
        if not copy.exists() or copy.read_text(encoding="utf-8") != text:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")


def read(app: Any, name: str, source: list[str]) -> None:
    """Turn the links of a page of docs/."""
    if not name.startswith("repository/"):
        home = (DOCS / name).parent
        source[0] = turned(source[0], home, home)


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("config-inited", copy)
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
