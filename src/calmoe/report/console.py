"""What the terminal shows of a run's results."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from calmoe.calibration.temperature_solvers import FITTED
from calmoe.experiments.runner import Outcome
from calmoe.experiments.store import RESULTS
from calmoe.render.console import say, say_notes
from calmoe.render.wording import many, shortest
from calmoe.report.run_tables import results_table
from calmoe.report.titles import run_title

NAMED = 5  # rows that a note names


def show_results(outcome: Outcome, console: Console) -> None:
    """The table under each protocol, odd temperatures, what failed, and where the rows are."""
    run, rows = outcome.run, outcome.rows
    if run is None or outcome.time_up:
        return
    title = run_title(run.spec, but=run.record.setting)
    for protocol in run.record.protocols:
        console.print(results_table(rows, title, protocol).rich())
    say_notes(temperature_notes(rows), console)
    for name, reason in outcome.failed.items():
        say(f"failed: {name}: {reason}", console)
    more = "--methods, --seeds or --values" if run.sweep else "--methods or --seeds"
    say(f"{many(len(rows), 'row')} in {run.path / RESULTS}; more {more} add to them", console)


def temperature_notes(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each protocol and kind of temperature that is no optimum: which rows, and how many."""
    odd: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["temperature_status"] not in FITTED:
            odd.setdefault((row["protocol"], row["temperature_status"]), []).append(row)
    notes = []
    for (protocol, status), those in odd.items():
        names = [
            f"seed {r['seed']} {r['method']}"
            + (f" {r['setting']} {shortest(r['value'])}" if "value" in r else "")
            for r in those
        ]
        low, high = (f"{pick(r['temperature'] for r in those):.3g}" for pick in (min, max))
        notes.append(
            f"{protocol} protocol: temperature {low}{f' to {high}' * (low != high)}, {status}, in "
            f"{len(those)} of {many(sum(r['protocol'] == protocol for r in rows), 'row')}: "
            f"{', '.join(names[:NAMED])}{', …' * (len(names) > NAMED)}"
        )
    return notes
