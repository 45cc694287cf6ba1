"""The audit on a terminal: the verdict in at most twelve lines of plain words, the page's path among them."""

import textwrap

from calmoe.auditing.presentation.commands import ANY_FILE, Asked, commands
from calmoe.auditing.presentation.words import (
    action_line,
    groups_line,
    headline,
    hidden_line,
    skill_line,
    target_line,
    threat_line,
)
from calmoe.auditing.verdict import Verdict

WIDTH = 110  # characters of a line
MOST = 11  # lines: one more says where the page is


def summary(verdict: Verdict, asked: Asked) -> str:
    """A paragraph a question, wrapped; asked: what the commands name.

    Where that is too long, what is hidden, which the first sentence tells too, is left to the page; then the
    groups, if none is off.
    """
    paragraphs = summary_lines(verdict, asked)
    for spare in ("Hidden", *(() if verdict.groups_off else ("For whom not",))):
        if len(_wrapped(paragraphs)) > MOST:
            paragraphs = [paragraph for paragraph in paragraphs if paragraph[0] != spare]
    return "\n".join(_wrapped(paragraphs))


def summary_lines(verdict: Verdict, asked: Asked = ANY_FILE) -> list[tuple[str, str]]:
    """What each paragraph of the terminal's summary is about, and its words; the commands come last."""
    lines = [("Verdict", headline(verdict)), ("Skill", skill_line(verdict))]
    for lead, line in (("For whom not", groups_line(verdict)), ("Hidden", hidden_line(verdict))):
        lines += [(lead, line)] if line else []
    return [
        *lines,
        ("What could break it", threat_line(verdict)),
        *([("On the target", target)] if (target := target_line(verdict)) else []),
        ("What to do", action_line(verdict)),
        *(("Command", each) for each in commands(verdict, asked)),
    ]


def _wrapped(paragraphs: list[tuple[str, str]]) -> list[str]:
    lines: list[str] = []
    for lead, text in paragraphs:
        if lead == "Command":
            lines.append(f"  {text}")
        else:
            lines += textwrap.wrap(f"{lead}: {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return lines
