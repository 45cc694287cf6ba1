"""Text from files and folders, made harmless for the place where it goes; plain text stays as it is.

A terminal gets `visible` text; Markdown, LaTeX and CSV have their own function here, HTML has Python's own.
"""

import re
import unicodedata


def visible(text: str) -> str:
    r"""One line for a terminal: characters that steer it, break lines, hide or cannot be written are escaped.

    >>> print(visible("\x1b[2Jnorth\nsouth \u202e"), visible("caf\udce9.csv"), visible("café, η ≥ 2"))
    \x1b[2Jnorth\nsouth \u202e caf\xe9.csv café, η ≥ 2
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte of a path that is not UTF-8, as Python holds it
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


_INLINE = re.compile(r"[\\`*<|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|(?<=\])[(\[:]|!(?=\[)")
_BLOCK = re.compile(r"\A(\d+(?=[.)](?:\s|$))|(?=[#>]|[-+=](?:[-+=\s]|$)))")  # a heading, quote, list or rule


def markdown(text: str) -> str:
    r"""A cell or a paragraph of GitHub's Markdown: no other cell, row, heading, image, tag or style.

    >>> print(markdown("# a|b `c` <img> [d](e)"), markdown("my_own [0.1, 0.2]"))
    \# a\|b \`c\` \<img> [d]\(e) my_own [0.1, 0.2]
    """
    return _BLOCK.sub(r"\1\\", _INLINE.sub(r"\\\g<0>", visible(text).strip()))


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "η": r"$\eta$",
    "Γ": r"$\Gamma$",
    "⌈": r"$\lceil$",
    "⌉": r"$\rceil$",
    **{symbol: f"${symbol}$" for symbol in "<>|"},
    **{symbol: f"\\{symbol}" for symbol in "&%$#_{}"},
}


def latex(text: str) -> str:
    r"""Text of a LaTeX document: no command, and no option of the line break before it.

    >>> print(latex("50 % of \\input{x}"), latex("[a]"))
    50 \% of \textbackslash{}input\{x\} {[}a]
    """
    escaped = "".join(_LATEX.get(character, character) for character in visible(text))
    return f"{{{escaped[0]}}}{escaped[1:]}" if escaped[:1] in ("[", "*") else escaped


_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def spreadsheet(text: str) -> str:
    r"""A text cell of a CSV file: an apostrophe before what a spreadsheet would take for a formula.

    >>> print(spreadsheet("=1+2"), spreadsheet("-0.5"), spreadsheet("a-b"))
    '=1+2 -0.5 a-b
    """
    writable = text.encode(errors="backslashreplace").decode()
    return f"'{writable}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else writable


def drawable(text: str) -> str:
    r"""The text as figures show it letter by letter: between two dollars matplotlib expects mathematics.

    >>> drawable("$5 or $6")
    '\\$5 or \\$6'
    """
    return text.replace("$", r"\$")
