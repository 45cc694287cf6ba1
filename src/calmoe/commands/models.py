"""Commands on one's own data: `calmoe train`, `calmoe init` and `calmoe predict`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calmoe.commands.options import FOLDER, Device
from calmoe.commands.program import app, say
from calmoe.commands.several import several_ranks
from calmoe.errors import InputError
from calmoe.launch import follows

if TYPE_CHECKING:
    from calmoe.own_data.spec import TrainSpec

DataPath = Annotated[
    Path, typer.Argument(help="A table (csv, parquet, jsonl), a folder of images, or a spec (toml).")
]
Label = Annotated[str | None, typer.Option(help="The column to predict.")]
Text = Annotated[str | None, typer.Option(help="Learn from the texts in this column.")]
EncoderFolder = Annotated[
    str | None, typer.Option(help="The model that reads the texts: a folder, or a name on the hub.")
]
GroupNames = Annotated[
    list[str] | None, typer.Option("--group", help="A column to score by; repeat for more.")
]
Shift = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=VALUE", help="Hold these rows out as a shift; repeat for more values of the column."
    ),
]
Domain = Annotated[str | None, typer.Option(help="Hold out this domain of images, DIR/domain/class.")]
ExpectShift = Annotated[
    str | None, typer.Option(help="A column whose values will be others in use: train against that.")
]
Cases = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="COLUMN",
        help="Names cases, such as person_id: their rows stay together, and the column is not learned from.",
    ),
]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out; repeat for more.")]
Kind = Annotated[str | None, typer.Option("--model", help="auto, mixture (of models) or network.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of a network, such as epochs=10."),
]
HeldOut = Annotated[
    float | None, typer.Option(help="The share of rows to score on; a fifth, or 200 rows, if not given.")
]
Seed = Annotated[int | None, typer.Option(min=0, help="Says which rows are held out, and all else.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "--to", help="The model's folder; DATA-model if not given.", **FOLDER),
]
Compare = Annotated[bool, typer.Option("--compare", metavar="", help="Train the paper's methods beside it.")]


@app.command("train")
@several_ranks("run the same command again")
def train_command(
    data: DataPath,
    label: Label = None,
    text: Text = None,
    encoder: EncoderFolder = None,
    group: GroupNames = None,
    shift: Shift = None,
    domain: Domain = None,
    expect_shift: ExpectShift = None,
    cluster: Cases = None,
    drop: Drop = None,
    model: Kind = None,
    settings: Set = None,
    held_out: HeldOut = None,
    seed: Seed = None,
    out: Out = None,
    compare: Compare = False,
    device: Device = "auto",
) -> None:
    """Train a model on your own table, texts or images, and write its folder and its page.

    Example: calmoe train credit.csv --label default --group region

    Texts: calmoe train mails.csv --label topic --text body --encoder DIR

    Images: calmoe train photos --domain sketch    (photos/DOMAIN/CLASS/…)
    """
    spec = _spec(
        data, label, text, encoder, group, shift, domain, expect_shift, cluster, drop, model, settings,
        held_out, seed, out, compare,
    )  # fmt: skip
    from calmoe.auditing.repairs.repair import FEWEST
    from calmoe.own_data.parts import SHIFT
    from calmoe.own_data.train import PAGE, PREDICTIONS, follow_training, train
    from calmoe.render.console import make_console

    if follows():
        follow_training(spec, device)
        return
    console = make_console()
    trained = train(spec, device, console, say)
    for grid in trained.grids:
        console.print(grid.rich())
    for note in trained.notes:
        say(note)
    say(f"the model is {spec.folder}, its page {spec.folder / PAGE}")
    if trained.held_out >= FEWEST:
        say(f"are its probabilities true? calmoe audit {spec.folder} --out audit")
    else:
        few = f"an audit needs {FEWEST} labelled rows new to the model: {trained.held_out} were held out here"
        enough = trained.cases >= 2 * FEWEST
        say(f"{few}, {'--held-out 0.5 takes more, from those that teach' if enough else 'label more'}")
    if trained.shift >= FEWEST:
        say(f"and on the shift? calmoe audit {spec.folder / PREDICTIONS[SHIFT]} --out audit-of-the-shift")
    say(f"use it: calmoe predict {spec.folder} NEW_DATA --out predictions.csv")


@app.command("init")
def init_command(
    data: DataPath,
    label: Label = None,
    text: Text = None,
    encoder: EncoderFolder = None,
    group: GroupNames = None,
    shift: Shift = None,
    domain: Domain = None,
    expect_shift: ExpectShift = None,
    cluster: Cases = None,
    drop: Drop = None,
    model: Kind = None,
    settings: Set = None,
    held_out: HeldOut = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", "--to", help="The file; DATA.toml if not given.", **FOLDER)
    ] = None,
) -> None:
    """Look at the data and write a commented spec, a TOML file that `calmoe train` runs.

    Example: calmoe init credit.csv --label default

    Then: calmoe train credit.toml
    """
    import os

    from calmoe.files import check_new, is_utf8, legible, write_whole
    from calmoe.own_data.settings import trainee
    from calmoe.own_data.spec import as_toml
    from calmoe.own_data.train import look

    spec = _spec(
        data, label, text, encoder, group, shift, domain, expect_shift, cluster, drop, model, settings,
        held_out, seed, None, False,
    )  # fmt: skip
    path = out or Path(f"{spec.name}.toml")
    check_new(path, (".toml",), "a spec")
    if not is_utf8(str(spec.data)):
        raise InputError(f"{legible(spec.data)}: its name is not UTF-8, and a spec is: rename it")
    rows, summary, notes = look(spec)
    for line in [*summary, *(f"note: {note}" for note in notes)]:
        say(line)
    from dataclasses import replace

    beside = Path(os.path.relpath(spec.data, path.parent))
    reader = trainee(rows.source.kind, spec.model, spec.compare)
    write_whole(path, as_toml(replace(spec, data=beside), [*summary, *notes], reader).encode())
    say(f"the spec is {path}: calmoe train {path}")


@app.command("predict")
def predict_command(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[Path, typer.Argument(help="A table, a folder of images, or one image.")],
    out: Annotated[Path, typer.Option("--out", "--to", help="A csv, parquet or safetensors file.", **FOLDER)],
    label: Annotated[
        str | None, typer.Option(help="The column of true labels; the model's own if it is there.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", help="A column to keep beside the model's groups, such as an id; repeatable."
        ),
    ] = None,
) -> None:
    """Predict with a trained model; `calmoe audit` reads what it writes.

    Rows that the model was trained on are marked in a column taught_the_model, and left out of audits.

    Example: calmoe predict credit-model new.csv --out predictions.csv
    """
    from calmoe.auditing.target.density import FEWEST_ROWS
    from calmoe.experiments.trained import load
    from calmoe.formats import HELD_OUT
    from calmoe.new_rows import taught_rows
    from calmoe.own_data.predict import predict
    from calmoe.own_data.worth import FEWEST
    from calmoe.render.wording import many

    trained = load(model)
    predicted = predict(trained, data, out, label or "", tuple(group or ()))
    for note in predicted.notes:
        say(f"note: {note}")
    labelled = predicted.predictions.labels is not None
    cluster = str(trained.card.settings.get("cluster", ""))
    cases = ["--cluster", cluster] if cluster in predicted.predictions.groups else []
    rows, new = len(predicted.predictions), int((~taught_rows(predicted.predictions)).sum())
    say(f"{many(rows, 'prediction')} in {out}{'' if labelled else ', without labels'}")
    if not new:
        say("next: the same with other rows, as calmoe audit takes none of these")
    elif labelled and new >= FEWEST:
        say(f"next: {shlex.join(['calmoe', 'audit', str(out), *cases])}")
    elif not labelled and new >= FEWEST_ROWS and (model / HELD_OUT).is_file():
        audit = shlex.join(["calmoe", "audit", str(model), "--target", str(out), *cases])
        say(f"next: {audit} says what they may be worth")


def _spec(
    data: Path,
    label: str | None,
    text: str | None,
    encoder: str | None,
    group: list[str] | None,
    shift: list[str] | None,
    domain: str | None,
    expect_shift: str | None,
    cluster: str | None,
    drop: list[str] | None,
    model: str | None,
    settings: list[str] | None,
    held_out: float | None,
    seed: int | None,
    out: Path | None,
    compare: bool,
) -> "TrainSpec":
    """The spec of these options; those that are given change a spec in a TOML file."""
    from dataclasses import replace

    from calmoe.arrays import as_number, check_word
    from calmoe.own_data.spec import MODELS, TrainSpec, read_spec, with_settings

    spec = read_spec(data) if data.suffix == ".toml" else TrainSpec(data=data)
    given: dict[str, Any] = {"label": label, "text": text, "encoder": encoder, "domain": domain, "seed": seed}
    given |= {"expect_shift": expect_shift, "cluster": cluster, "out": out, "compare": compare or None}
    lists = {"groups": group, "shift": shift, "drop": drop}
    given |= {name: tuple(values) for name, values in lists.items() if values}
    if model is not None:
        given["model"] = check_word("--model", model, MODELS)
    if held_out is not None:
        given["held_out"] = as_number("--held-out", held_out, above=0, most=0.9)
    spec = replace(spec, **{name: value for name, value in given.items() if value is not None})
    return with_settings(spec, settings or [])
