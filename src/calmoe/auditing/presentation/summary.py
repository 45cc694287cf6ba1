"""The audit on a terminal: the verdict in at most twelve lines of plain words."""

import textwrap

from calmoe.auditing.presentation.words import summary_lines
from calmoe.auditing.verdict import Verdict

WIDTH = 110  # characters of a line


def summary(verdict: Verdict, file: str | None = None) -> str:
    """A paragraph a question, wrapped; file: its name, for the command."""
    lines: list[str] = []
    for lead, text in summary_lines(verdict, file):
        if lead == "Command":
            lines.append(f"  {text}")
        else:
            lines += textwrap.wrap(f"{lead}: {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)
