"""A model's card: what it was trained on, how, by which code, and how well it does; JSON and Markdown."""

from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from calmoe.errors import InputError
from calmoe.escaping import markdown
from calmoe.models.saved import exactly
from calmoe.validation import items, number, table, text, whole

TITLES = {
    "rows": "rows",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "ece": "ECE",
    "brier": "Brier score",
    "average_precision": "average precision",
}
MOST_TEXT = 10_000
Scores: TypeAlias = dict[str, dict[str, float]]


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
    scores: Scores = field(default_factory=dict)  # by part: validation, held out, shift
    baselines: dict[str, Scores] = field(default_factory=dict)  # by name
    worth: str = ""  # whether it is better than the best of them
    calibrator: str = ""  # what repairs its probabilities, and what that was fitted on
    calmoe: str = ""
    commit: str = ""
    date: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"columns": list(self.columns), "groups": list(self.groups)}

    @classmethod
    def from_dict(cls, saved: Any) -> "Card":
        """What `as_dict` gave, checked."""
        later: dict[str, Any] = {"baselines": {}, "worth": "", "calibrator": ""}  # what older folders lack
        fields = exactly("", later | table("", saved), cls.__dataclass_fields__)
        words = (
            *("dataset", "method", "digest", "label", "text"),
            *("worth", "calibrator", "calmoe", "commit", "date"),
        )
        for name, value in table("settings", fields["settings"]).items():
            if value is not None and not isinstance(value, str | bool | int | float):
                raise InputError(f"settings.{name} must be a text, a number or true or false")
        baselines = {
            text("baselines", name, MOST_TEXT): _read_scores(f"baselines.{name}", parts)
            for name, parts in table("baselines", fields["baselines"]).items()
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
            scores=_read_scores("scores", fields["scores"]),
            baselines=baselines,
        )

    def markdown(self, kind: str, classes: list[Any]) -> str:
        """A short README for people who find the folder."""
        shown = ", ".join(map(str, classes[:12])) + (f" and {len(classes) - 12} more" * (len(classes) > 12))
        lines = [
            f"# A calmoe model for {markdown(self.label or self.dataset or 'data')}",
            "",
            f"It predicts one of {len(classes)} classes from {kind}: {markdown(shown)}. Its probabilities "
            "come from a temperature that is inside; `calmoe audit` says whether they are true on your data.",
            *self._repaired(),
            "",
            "```python",
            "import calmoe",
            'model = calmoe.load("this folder")',
            f"model.predict_proba({'table' if kind == 'tables' else kind})",
            "```",
            "",
            f"Trained on {markdown(self._origin())} by calmoe {self.calmoe}"
            f"{f', commit {self.commit[:12]}' * bool(self.commit)}{f', {self.date}' * bool(self.date)}.",
            "",
            *self._table(),
        ]
        limits = "Scores hold for rows like those it was trained on. `calmoe audit` says what a shift may do."
        return "\n".join([*lines, limits, ""])

    def _repaired(self) -> list[str]:
        """That a calibrator repairs its probabilities."""
        if not self.calibrator:
            return []
        return [
            "",
            f"Its probabilities are repaired by {markdown(self.calibrator)}: calibrator.json, which "
            "`calmoe.load` applies. The scores below are from before.",
        ]

    def lines(self) -> list[str]:
        """What it was trained on and its scores, a line each; none where nobody knows."""
        described = [f"trained on {self._origin()}"] if self.dataset else []
        if self.calibrator:
            described.append(f"repaired by {self.calibrator}")
        for part, values in self.scores.items():
            rows = [f"{values['rows']:,.0f} rows"] if "rows" in values else []
            known = {name: title for name, title in TITLES.items() if name in values and name != "rows"}
            figures = [f"{title} {_plain(name, values)}" for name, title in known.items()]
            described.append(f"{part}: {', '.join([*rows, *figures])}")
        return described

    def _origin(self) -> str:
        rows = f"{self.rows:,} rows of " * bool(self.rows)
        method = ", ".join(filter(None, [self.method, f"seed {self.seed}"]))
        return f"{rows}{self.dataset} ({method})"

    def _table(self) -> list[str]:
        """Our scores part by part, then the baselines'; and what the numbers mean."""
        ours = {("this model", part): values for part, values in self.scores.items()}
        others = {(name, part): v for name, parts in self.baselines.items() for part, v in parts.items()}
        listed = ours | others
        if not listed:
            return []
        known = [n for n in TITLES if any(n in values for values in listed.values())]
        notes = []
        if any(f"{name}_low" in values for values in ours.values() for name in known):
            notes.append(
                "Intervals are 95 % sure for other rows drawn like these; they say nothing of another "
                "training, or of a shift."
            )
        if any("validation" in part for part in self.scores):
            notes.append(
                "Validation rows chose the model and its temperature: on them it looks better than it is."
            )
        if self.baselines:
            notes.append(
                "The ECE is the one of `calmoe audit`, in bins of equal width; at most: the upper end of "
                "its interval. An estimate of 0.000, freed from upward bias, says that no error shows, not "
                "that there is none."
            )
        return [
            f"| | rows from | {' | '.join(TITLES[name] for name in known)} |",
            f"| --- | --- |{' ---: |' * len(known)}",
            *(
                f"| {markdown(name)} | {markdown(part)} | {' | '.join(_figure(n, values) for n in known)} |"
                for (name, part), values in listed.items()
            ),
            "",
            *([f"{markdown(self.worth[:1].upper() + self.worth[1:])}.", ""] if self.worth else []),
            *([" ".join(notes), ""] if notes else []),
        ]


def _read_scores(what: str, saved: Any) -> Scores:
    return {
        text(what, part, MOST_TEXT): {
            name: number(f"{what}.{name}", v) for name, v in table(f"{what}.{part}", values).items()
        }
        for part, values in table(what, saved).items()
    }


def _figure(name: str, values: dict[str, float]) -> str:
    if name not in values:
        return "–"
    if name == "rows":
        return f"{values[name]:,.0f}"
    low, high = (values.get(f"{name}_{end}") for end in ("low", "high"))
    interval = name != "ece" and low is not None and high is not None
    return _plain(name, values) + (f" [{low:.3f}, {high:.3f}]" if interval else "")


def _plain(name: str, values: dict[str, float]) -> str:
    """The score; of an ECE first what it is at most, as few rows show little of it."""
    value = f"{values[name]:.3f}"
    if name == "ece" and "ece_high" in values:
        return f"at most {values['ece_high']:.3f} (estimate {value})"
    return value
