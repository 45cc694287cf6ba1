"""A model's card: what it was trained on, how, by which code, and how well it does; JSON and Markdown."""

from dataclasses import asdict, dataclass, field
from typing import Any

from calmoe.errors import InputError
from calmoe.escaping import markdown
from calmoe.models.saved import exactly
from calmoe.validation import items, number, table, text, whole

SCORES = ("accuracy", "log_loss", "ece", "brier")
TITLES = {"accuracy": "accuracy", "log_loss": "log loss", "ece": "ECE", "brier": "Brier score"}
MOST_TEXT = 10_000


@dataclass(frozen=True, kw_only=True)
class Card:
    """Columns are names in the training table. `settings` are plain values by name."""

    dataset: str = ""
    method: str = ""
    rows: int = 0  # that it was trained on
    digest: str = ""  # SHA-256 of them, and of how they were split
    label: str = ""
    text: str = ""  # the column that holds the texts
    columns: tuple[str, ...] = ()  # what a table must have
    groups: tuple[str, ...] = ()
    seed: int = 0
    settings: dict[str, str | float | int | bool | None] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # by part: validation, held out, shift
    calmoe: str = ""
    commit: str = ""
    date: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"columns": list(self.columns), "groups": list(self.groups)}

    @classmethod
    def from_dict(cls, saved: Any) -> "Card":
        """What `as_dict` gave, checked."""
        fields = exactly("", saved, cls.__dataclass_fields__)
        words = ("dataset", "method", "digest", "label", "text", "calmoe", "commit", "date")
        for name, value in table("settings", fields["settings"]).items():
            if value is not None and not isinstance(value, str | bool | int | float):
                raise InputError(f"settings.{name} must be a text, a number or true or false")
        scores = {
            text("scores", part, MOST_TEXT): {name: number(f"scores.{name}", v) for name, v in values.items()}
            for part, values in table("scores", fields["scores"]).items()
            if table(f"scores.{part}", values) is not None
        }
        lists = {
            name: tuple(text(name, each, MOST_TEXT) for each in items(name, fields[name], most=100_000))
            for name in ("columns", "groups")
        }
        named: dict[str, Any] = {name: text(name, fields[name], MOST_TEXT) for name in words}
        return cls(
            **named | lists,
            rows=whole("rows", fields["rows"]),
            seed=whole("seed", fields["seed"]),
            settings=fields["settings"],
            scores=scores,
        )

    def markdown(self, kind: str, classes: list[Any]) -> str:
        """A short README for people who find the folder."""
        shown = ", ".join(map(str, classes[:12])) + (f" and {len(classes) - 12} more" * (len(classes) > 12))
        rows = f"{self.rows:,} rows of " * bool(self.rows)
        lines = [
            f"# A calmoe model for {markdown(self.label or self.dataset or 'data')}",
            "",
            f"It predicts one of {len(classes)} classes from {kind}: {markdown(shown)}. Its probabilities "
            "are calibrated: the temperature is inside.",
            "",
            "```python",
            "import calmoe",
            'model = calmoe.load("this folder")',
            f"model.predict_proba({'table' if kind == 'tables' else kind})",
            "```",
            "",
            f"Trained on {rows}{markdown(self.dataset)} ({markdown(self.method)}, "
            f"seed {self.seed}) by calmoe {self.calmoe}{f', commit {self.commit[:12]}' * bool(self.commit)}"
            f"{f', {self.date}' * bool(self.date)}.",
            "",
        ]
        if self.scores:
            known = [n for n in ("rows", *SCORES) if any(n in values for values in self.scores.values())]
            lines += [
                f"| part | {' | '.join(TITLES.get(name, name) for name in known)} |",
                f"| --- |{' ---: |' * len(known)}",
                *(
                    f"| {markdown(part)} | {' | '.join(_figure(name, values) for name in known)} |"
                    for part, values in self.scores.items()
                ),
                "",
            ]
        limits = "Scores hold for rows like those it was trained on. `calmoe audit` says what a shift may do."
        return "\n".join([*lines, limits, ""])


def _figure(name: str, values: dict[str, float]) -> str:
    if name not in values:
        return "–"
    return f"{values[name]:,.0f}" if name == "rows" else f"{values[name]:.4f}"
