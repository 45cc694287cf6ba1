"""Which numbers of a report rest on a sample of its rows, as in the audit of a table larger than memory."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """rows: of the sample. numbers: by the name of a section, which of its numbers rest on the sample."""

    rows: int
    numbers: dict[str, str]

    def note(self, section: str) -> str | None:
        """What a reader of the section must know; None where all of its numbers rest on all rows."""
        if section not in self.numbers:
            return None
        return f"From a sample of {self.rows:,} rows: {self.numbers[section]}."
