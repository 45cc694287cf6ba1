"""Does the seed of the audit decide its verdict? The same files, audited with several seeds."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from calmoe.auditing import Verdict, audit
from calmoe.errors import InputError
from calmoe.predictions import Predictions
from calmoe.render.grid import Grid, Heading, label
from studies.processes import answers

UNDECIDED = "not decided"
Task = tuple[Path, int]  # a file and a seed of the audit
Fields = dict[str, str]


def audit_verdicts(
    files: Annotated[list[Path], typer.Argument(help="Predictions with labels.")],
    seeds: Annotated[int, typer.Option(help="Seeds of the audit: 0, 1, …")] = 7,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    to: Annotated[Path | None, typer.Option(help="Keep each audit's row here, as JSON lines.")] = None,
) -> None:
    """Does another seed of the audit say something else?

    Audits each file with several seeds and prints the fields of the verdict, which all sentences follow from.
    A field differs if two seeds answer it differently and both are decided: a page that says “not decided”
    contradicts none. Then the exit code is 1. Which repair is chosen is no sentence of the verdict.

    Example: python -m studies audit-verdicts results/cifar10h/predictions/*-test.npz --jobs 2
    """
    if seeds < 2:
        raise InputError(f"--seeds must be at least 2, got {seeds}")
    for path in files:
        if not path.is_file():
            raise InputError(f"there is no {path}: give files of predictions")
    tasks = [(path, seed) for path in files for seed in range(seeds)]
    verdicts = dict(answers(fields_of, tasks, jobs, "audits"))
    by_file = {path: [verdicts[path, seed] for seed in range(seeds)] for path in files}
    if to is not None:
        lines = [{"file": path.name, "seed": seed, **verdicts[path, seed]} for path, seed in tasks]
        to.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    print(table(by_file).markdown())
    if any(differing(each) for each in by_file.values()):
        raise typer.Exit(1)


def fields_of(task: Task) -> Fields:
    """The verdict's decisions in words; its numbers are left out."""
    path, seed = task
    return decisions(audit(Predictions.load(path), seed=seed).verdict)


def decisions(verdict: Verdict) -> Fields:
    """Each answer of the verdict as a word; where nobody knows whether something is hidden, nor whence."""
    fields: dict[str, Any] = {
        "truth": verdict.truth,
        "side": verdict.side,
        "slight": verdict.slight,
        "worth": verdict.worth,
        "groups off": ", ".join(sorted(group.name for group in verdict.groups_off)),
        "groups worse": ", ".join(sorted(group.name for group in verdict.groups_worse)),
        "hidden": verdict.hidden,
        "origin": UNDECIDED if verdict.hidden == UNDECIDED else verdict.origin,
        "fragility": verdict.fragility,
        "repair": "yes" if verdict.mended else "no",
        "action": verdict.action.kind,
        "order": "out of order" if verdict.out_of_order else "in order",
    }
    return {name: "none" if value in (None, "") else str(value) for name, value in fields.items()}


def differing(seeds: list[Fields]) -> list[str]:
    """Fields that two decided seeds answer differently."""
    return [name for name in seeds[0] if len({each[name] for each in seeds} - {UNDECIDED}) > 1]


def table(by_file: dict[Path, list[Fields]]) -> Grid:
    """A row a file: each field's answer, or its answers with how often each was given."""
    names = list(next(iter(by_file.values()))[0])
    columns = [Heading(name, (name,)) for name in ("file", *names, "differ")]
    rows = [
        tuple(
            label(text, text)
            for text in (
                path.stem,
                *(_counted([each[name] for each in seeds]) for name in names),
                ", ".join(differing(seeds)) or "–",
            )
        )
        for path, seeds in by_file.items()
    ]
    return Grid(
        f"The verdict's fields over {len(next(iter(by_file.values())))} seeds of the audit",
        tuple(columns),
        (tuple(rows),),
    )


def _counted(values: list[str]) -> str:
    """
    >>> _counted(["off", "off"]), _counted(["hidden", "not decided", "hidden"])
    ('off', 'hidden 2, not decided 1')
    """
    if len(set(values)) == 1:
        return values[0]
    return ", ".join(f"{value} {values.count(value)}" for value in dict.fromkeys(values))
