"""The studies as commands of one program."""

import typer

from studies.again import again
from studies.audit_seeds import audit_seeds
from studies.audit_tables import audit_tables
from studies.audit_verdicts import audit_verdicts
from studies.audit_worlds import audit_worlds
from studies.audits import audits
from studies.beside_paper import beside_paper
from studies.cells import cells
from studies.cheaper import cheaper
from studies.choose import choose
from studies.claims import claims
from studies.failures import failures
from studies.figures import figures
from studies.hidden import hidden
from studies.jumps import jumps
from studies.own_data import own_data
from studies.pack import pack
from studies.readme_figure import readme_figure
from studies.repair_rules import repair_rules
from studies.repairs import repairs
from studies.reprint import reprint
from studies.reruns import reruns
from studies.stored_audits import stored_audits
from studies.switch import switch
from studies.train_truer import train_truer
from studies.truer import truer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
for study in (
    claims,
    beside_paper,
    cells,
    truer,
    train_truer,
    choose,
    cheaper,
    again,
    reruns,
    figures,
    failures,
    jumps,
    switch,
    audits,
    audit_seeds,
    audit_tables,
    audit_verdicts,
    stored_audits,
    audit_worlds,
    hidden,
    own_data,
    repairs,
    repair_rules,
    pack,
    readme_figure,
    reprint,
):
    app.command(study.__name__.replace("_", "-"))(study)


@app.callback(invoke_without_command=True)
def list_studies(context: typer.Context) -> None:
    """What the docs say beyond a report's tables, computed again.

    Example: python -m studies claims results/cifar10h
    """
    if context.invoked_subcommand is None:
        print(context.get_help())
