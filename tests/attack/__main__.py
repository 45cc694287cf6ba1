"""`make attack`: every attack in turn, and one table of figures; exit code 1 if anything got through."""

import argparse
import importlib
import os
import sys
import tempfile
import traceback
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from attack.figures import Tally, table

ATTACKS = (
    "prediction_files",
    "calibrator_files",
    "model_files",
    "data_files",
    "own_data",
    "own_models",
    "run_folders",
    "options",
    "bombs",
    "kills",
)
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # workers are forked: no threads before that, and one core each
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_MODULES_CACHE": tempfile.gettempdir() + "/calmoe-attack-modules",
    "CUDA_VISIBLE_DEVICES": "",
    "MPLBACKEND": "agg",
}


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a module or an attack; repeat for more"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="1 is the full attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file for the table too")
    parser.add_argument("--replay", metavar="NAME:CASE", help="one case again, with its traceback")
    options = parser.parse_args()
    os.environ |= ENVIRONMENT
    modules = {
        name: importlib.import_module(f"attack.{name}") for name in ATTACKS if find_spec(f"attack.{name}")
    }
    import torch

    torch.set_num_threads(1)
    targets = {each.name: each for module in modules.values() for each in getattr(module, "TARGETS", ())}
    if options.replay:
        name, _, number = options.replay.rpartition(":")
        return _replay(targets[name], options.seed, int(number))
    chosen = options.only or list(modules)
    if unknown := [name for name in chosen if name not in {**modules, **targets}]:
        parser.error(f"no attack {unknown[0]}: choose from {', '.join([*modules, *targets])}")
    tallies: list[Tally] = []
    with _bar() as bar:
        for name in chosen:
            task = bar.add_task(name, failures=0, total=None)

            def progress(done: int, total: int, failures: int, task: object = task) -> None:
                bar.update(task, completed=done, total=total, failures=failures)  # type: ignore[arg-type]

            if name in modules:
                tallies += modules[name].attack(options.scale, options.seed, progress)
            else:
                from attack.running import attack

                tallies += attack([targets[name]], options.scale, options.seed, progress)
    return _tell(tallies, options.out)


def _tell(tallies: list[Tally], out: Path | None) -> int:
    figures = table(tallies)
    print(figures)
    if out is not None:
        out.write_text(figures + "\n")
    failed = [tally for tally in tallies if tally.failed]
    for tally in failed:
        print(f"\n{tally.name}: {tally.failed:,} failed", *tally.failures, sep="\n- ")
    if failed:
        from attack.running import KEPT

        print(
            f"\nThe first files of each are in {KEPT}; `python -m attack --replay NAME:CASE` runs one again."
        )
    return int(bool(failed))


def _replay(target: object, seed: int, number: int) -> int:
    from attack.running import replay
    from calmoe.errors import InputError

    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    try:
        replay(target, seed, number, folder)  # type: ignore[arg-type]
        print(f"loaded; the files are in {folder}")
    except InputError as error:
        print(f"refused: {error}; the files are in {folder}")
    except BaseException:
        traceback.print_exc()
        print(f"the files are in {folder}")
        return 1
    return 0


def _bar() -> Progress:
    columns = TextColumn("{task.description:>17}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    failures = TextColumn("{task.fields[failures]} failed")
    return Progress(*columns, failures, console=console, disable=not console.is_terminal)


if __name__ == "__main__":
    sys.exit(main())
