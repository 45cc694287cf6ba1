"""Words that explain themselves: in a text of the page each known word becomes a button with its meaning."""

import re
from html import escape

from calmoe.auditing.presentation.glossary import TERMS
from calmoe.escaping import visible
from calmoe.render.page import Html

_WORDS = re.compile(
    r"(?<![\w-])(" + "|".join(sorted(map(re.escape, TERMS), key=len, reverse=True)) + r")(?![\w-])"
)


class Explainer:
    """Marks up the texts of one page; every explanation gets a number of its own."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, text: str) -> Html:
        """The text, escaped, with the first use of each known word explained on hover, focus or tap.

        >>> Explainer()("An ECE of <0.1>")
        'An <span class="term"><button type="button" aria-describedby="term-1">ECE</button><span
        role="tooltip" id="term-1">...</span></span> of &lt;0.1&gt;'
        """
        parts, seen = [], set()
        for part in _WORDS.split(" ".join(map(visible, text.split("\n")))):
            if part in TERMS and part not in seen:
                seen.add(part)
                parts.append(self._explained(part))
            else:
                parts.append(escape(part))
        return Html("".join(parts))

    def _explained(self, word: str) -> str:
        self.given += 1
        name = f"term-{self.given}"
        return (
            f'<span class="term"><button type="button" aria-describedby="{name}">{escape(word)}</button>'
            f'<span role="tooltip" id="{name}">{escape(TERMS[word])}</span></span>'
        )
