"""What the terminal shows of a run's results."""

from rich.console import Console

from calmoe.experiments.runner import Outcome
from calmoe.experiments.store import RESULTS
from calmoe.render.console import say, say_notes
from calmoe.render.wording import many
from calmoe.report.run_tables import results_table
from calmoe.report.sweeps import choices_in_words
from calmoe.report.temperatures import temperature_notes


def show_results(outcome: Outcome, console: Console) -> None:
    """The table under each protocol, odd temperatures, what failed, and where the rows are."""
    run, rows = outcome.run, outcome.rows
    if run is None or outcome.time_up:
        return
    swept = run.sweep.settings if run.sweep else ()
    for protocol in run.record.protocols:
        console.print(results_table(rows, run.spec, protocol, swept).rich())
    say_notes(temperature_notes(rows), console)
    for line in choices_in_words(rows, run.spec.protocol) if run.sweep else ():
        say(line, console)
    for name, reason in outcome.failed.items():
        say(f"failed: {name}: {reason}", console)
    more = "--methods, --seeds or values" if run.sweep else "--methods or --seeds"
    say(f"{many(len(rows), 'row')} in {run.path / RESULTS}; more {more} add to them", console)
