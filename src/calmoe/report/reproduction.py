"""The commands that run all of a report again."""

import shlex
from collections.abc import Iterable, Sequence
from itertools import product

from calmoe.data import DATASETS
from calmoe.experiments.environment import portable
from calmoe.experiments.record import Record
from calmoe.experiments.spec import RunSpec, load_preset, setting_text
from calmoe.experiments.sweep import Sweep, Value, paper_sweep, value_text
from calmoe.report.sources import Sources
from calmoe.report.titles import changed_settings

AGAIN = "reproduced"  # runs/ may hold another run of the same name


def reproduce(sources: Sources) -> str:
    """The commands that give all this again, in folders of their own; what the preset says is left out."""
    name = sources.record.spec.name
    records = ([sources.record] if sources.runs else []) + [s.record for s in sources.sweeps.values()]
    folders = [f"{AGAIN}/{name}"] if sources.runs else []
    folders += [f"{AGAIN}/{name}-{swept}" for swept in sources.sweeps]
    return commands(records, folders)


def commands(records: Sequence[Record], folders: Sequence[str], options: Sequence[str] = ()) -> str:
    """Those behind the records, each into its folder, then `calmoe report` of these with these options."""
    runs = [command(record, folder) for record, folder in zip(records, folders, strict=True)]
    data = _data_option(records[0].spec.dataset)
    return "\n".join([*runs, shlex.join(["calmoe", "report", *folders, *options, *data])])


def command(record: Record, out: str | None = None) -> str:
    """The `calmoe run` or `calmoe sweep` behind a record."""
    spec, sweep = record.spec, record.sweep
    words = ["calmoe", *(_sweep_words(spec, sweep) if sweep else ["run", spec.dataset])]
    words += _data_option(spec.dataset)
    defaults = load_preset(spec.dataset) if spec.dataset in DATASETS else None
    for name in ("target", "methods", "seeds", "protocol"):
        value, default = getattr(spec, name), getattr(defaults, name, "")
        if value != (("robust",) if sweep and name == "methods" else default):
            words += [f"--{name}", value if isinstance(value, str) else ",".join(map(str, value))]
    for key, value in sorted(changed_settings(spec).items()):
        words += ["--set", portable(f"{key}={setting_text(value)}")]
    for origin in dict.fromkeys(plugin.origin for plugin in record.plugins):
        words += ["--plugin", portable(origin)] if origin.endswith(".py") else []
    return shlex.join([*words, *(["--out", out] if out else [])])


def _sweep_words(spec: RunSpec, sweep: Sweep) -> list[str]:
    """`sweep` and its points: of one setting its values, of several a grid where they are one, or pairs."""
    if len(sweep.settings) == 1:
        (setting,) = sweep.settings
        values = (
            []
            if sweep == paper_sweep(setting, spec.training.epochs)
            else ["--values", _by_commas(sweep.values)]
        )
        return ["sweep", setting, spec.dataset, *values]
    columns = [*zip(*sweep.points, strict=True)]
    axes = [[*dict.fromkeys(column)] for column in columns]
    is_grid = {*product(*axes)} == {*sweep.points}
    shown = [
        f"{setting}={_by_commas(values)}"
        for setting, values in zip(sweep.settings, axes if is_grid else columns, strict=True)
    ]
    return ["sweep", spec.dataset, *shown, *([] if is_grid else ["--paired"])]


def _by_commas(values: Iterable[Value]) -> str:
    return ",".join(map(value_text, values))


def _data_option(dataset: str) -> list[str]:
    return ["--data", "DIR"] if dataset not in DATASETS or DATASETS[dataset].needs_folder else []
