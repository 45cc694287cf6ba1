"""Every link inside a built site leads to a file, and to a place in it: `python built_links.py FOLDER`."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page, and the places that links may lead to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Called by the parser."""
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def dead_links(folder: Path) -> list[str]:
    """A line for each link that leads nowhere; addresses elsewhere are not followed."""
    pages = {file.resolve(): Page(file) for file in sorted(folder.rglob("*.html"))}
    dead = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            place = unquote(parts.fragment)
            if not target.exists() or (target in pages and place not in pages[target].places):
                dead.append(f"{file.relative_to(folder.resolve())}: {link}")
    return dead


if __name__ == "__main__":
    dead = dead_links(Path(sys.argv[1]))
    print("\n".join(dead) or "every link inside the site leads somewhere")
    sys.exit(bool(dead))
