"""Attack: settings, methods, seeds, values and every other option; specs as tables. Nothing ever trains."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from attack.commands import call
from attack.damage import damaged_value
from attack.figures import Progress, Tally
from attack.prediction_files import calmoe_safetensors
from attack.run_folders import DECOYS, SMALL, Files, Seeds, without_figures
from attack.run_folders import prepare as prepare_runs
from attack.running import Forbidden, Target, Wrong
from attack.running import attack as run_attack
from attack.watching import unchanged
from calmoe import data
from calmoe.experiments.engines import local
from calmoe.experiments.plan import make_plan
from calmoe.experiments.spec import from_table, load_preset

PRESETS = ("digits", "cifar10h", "pacs", "civilcomments")
SETTINGS = """
epochs warmup batch learning_rate weight_decay eta gamma regret disagreement backbone hidden stem stages
variant experts router_hidden routing weights pooling precision filter_fraction filter_variant forget_moments
protocol target keep_weights methods seeds model.experts training.epochs model training x é ,
"""
WORDS = """
0 -1 1 2 3 10 0.5 1.5 -0.0 1e300 1e999 nan inf -inf 1_0 0x10 0b1 01 ١ 1e 99999999999999999999 1000000000
true false True null None [] [1,2] [4] [[1]] {a=1} "x" 'x' "" 1979-05-27 a=b --help -x
soft hard top1 top2 top99999999999999999999 mlp resnet18 encoder cifar v1 bfloat16 top cpu
vanilla robust vanilla,robust vanilla, , mocae,mocae VANILLA published corrected sketch
100000 42 42-46 46-42 0-999 0-1000 1-9999999999 4294967295 4294967296 1,2,3, 1-2-3
../../escaped /etc/passwd /dev/zero . .. ~ hf: hf:a/b hf:../.. no/such/model =cmd <b>
"""
TOKENS = (
    *WORDS.split(),
    *("", " ", " 7 - 8 ", "1 # x", "1\nx = 2", "a\nb", "\x1b[31mred", "caf\udce9", "\u202e"),
    *("[" * 500, "9" * 5000, "x" * 5000, "top" + "9" * 5000),
)
ODD = ("", ".", "own", "own/mine.png", "/dev/null", "caf\udce9")
PLACES = (*ODD, "new", "new", "new/deep/er", "own/../new", "\n", "x" * 300)
ODD_FILES = (*ODD, "none.csv", "/dev/zero", "small.txt")

# --- tables


def _tables(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(asdict(load_preset(name)))) for name in PRESETS]


def attempt_table(random: Random, seeds: list[dict[str, Any]], folder: Path) -> None:
    """A spec is what its table says, all of it; and it can be planned."""
    table = damaged_value(random.choice(seeds), random)
    with unchanged(folder):
        spec = from_table(table)
        make_plan(spec, "", "cpu")
    loaded = json.loads(json.dumps(asdict(spec)))
    for place, given in _leaves(table):
        value: Any = loaded
        for name in place:
            value = value[name]
        if value != given or isinstance(value, bool) != isinstance(given, bool):
            raise Wrong(f"{'.'.join(map(str, place))} is not the table's: {value!a}, not {given!a}"[:300])


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    if not isinstance(value, dict | list):
        return [(place, value)]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [leaf for name, inside in items for leaf in _leaves(inside, (*place, name))]


# --- the command line


def nothing_trains() -> None:
    """And digits are loaded once: a dry run looks at them every time."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise Forbidden("a dry run trains")

    local.Local.train = refuse
    card = data.DATASETS["digits"]
    if not hasattr(card.load, "cache_info"):
        data.DATASETS["digits"] = replace(card, load=cache(card.load))


def _token(random: Random, usual: str) -> str:
    return random.choice(TOKENS) if random.random() < 0.6 else usual


def _settings(random: Random) -> list[str]:
    """Up to three options --set beside small ones."""
    count = random.choice((0, 1, 1, 1, 2, 3))
    return [
        *SMALL,
        *(f"--set={random.choice(SETTINGS.split())}={_token(random, '1')}" for _ in range(count)),
        *([f"--set={random.choice(TOKENS)}"] if random.random() < 0.05 else []),
    ]


def _maybe(random: Random, option: str, usual: str, share: float = 0.3) -> list[str]:
    return [f"{option}={_token(random, usual)}"] if random.random() < share else []


def _dry_run(random: Random) -> list[str]:
    return [
        *("run", "digits" if random.random() < 0.9 else random.choice((*PRESETS, *TOKENS)), "--dry-run"),
        *_settings(random),
        *_maybe(random, "--methods", "vanilla,robust", 0.2),
        *_maybe(random, "--seeds", "42-44", 0.2),
        *_maybe(random, "--protocol", "published", 0.1),
        *_maybe(random, "--target", "sketch", 0.03),
        *_maybe(random, "--device", "cpu", 0.05),
        *_maybe(random, "--data", "own", 0.05),
        *_maybe(random, "--time-limit", "1", 0.05),
        f"--out={random.choice(PLACES)}",
    ]


def _dry_sweep(random: Random) -> list[str]:
    swept = random.choice(("eta", "warmup")) if random.random() < 0.9 else random.choice(("gamma", *TOKENS))
    if random.random() < 0.5:
        return ["sweep", swept, *_dry_run(random)[1:], *_maybe(random, "--values", "0.5,1,2", 0.7)]
    axes = [
        f"{swept}={_token(random, random.choice(('0.5,1', '0..2', '1..2:log')))}",
        "learning_rate=1e-3,1e-2",
    ]
    ways = [*_maybe(random, "--random", "3", 0.7), *_maybe(random, "--optuna", "2", 0.1)]
    return [
        "sweep",
        *axes[: random.randint(1, 2)],
        *_dry_run(random)[1:],
        *ways,
        *_maybe(random, "--seed", "1", 0.2),
    ]


def attempt_dry(random: Random, seeds: None, folder: Path) -> None:
    """Dry runs of runs and sweeps write nothing at all."""
    nothing_trains()
    _write(DECOYS, folder / "own")
    with unchanged(folder):
        call(random.choice((_dry_run, _dry_run, _dry_sweep))(random))


def _write(files: Files, folder: Path) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _seeds(folder: Path) -> tuple[Seeds, bytes]:
    return prepare_runs(folder), calmoe_safetensors(folder)[1]


def attempt_options(random: Random, seeds: tuple[Seeds, bytes], folder: Path) -> None:
    """Of every other command: what is not its own stays as it is."""
    without_figures()
    nothing_trains()
    runs, small = seeds
    _write(DECOYS, folder / "own")
    (folder / "own" / ".lock").symlink_to("victim")
    _write(runs.run, folder / "run")
    _write(runs.pacs, folder / "pacs")
    (folder / "small.safetensors").write_bytes(small)
    (folder / "small.txt").write_bytes(small)
    with unchanged(folder, _may_change):
        call(random.choice(COMMANDS)(random))


def _may_change(path: str) -> bool:
    """What is new in new folders, a run's results, and what joins the files that are there."""
    first, _, rest = path.partition("/")
    if first in ("new", "caf\udce9", "\n"):
        return True
    if first in ("run", "pacs"):
        return rest in ("results.jsonl", "done.json", ".lock") or rest.partition("/")[0] == "report"
    return first == "own" and rest not in DECOYS and rest != ".lock" and bool(rest)


def _only_report(random: Random) -> list[str]:
    where = random.choice(("run", "pacs", *PLACES))
    name = ["pacs", "--target=sketch"] if where == "pacs" else ["digits"]
    options = [*_maybe(random, "--methods", "vanilla", 0.2), *_maybe(random, "--seeds", "42", 0.2)]
    return ["run", *name, "--only-report", f"--out={where}", *options]


def _audit(random: Random) -> list[str]:
    """One that is refused: a whole audit takes a second, and the files' attack has the readers."""
    file = random.choice(ODD_FILES) if random.random() < 0.5 else "small.safetensors"
    wrong = random.choice(("--bins", "--level", "--seed", "--of", "--target", "--labelled-target"))
    usual = {"--bins": "0", "--level": "2", "--seed": "-1", "--of": "7"}.get(wrong, "none.csv")
    out = [f"--out={random.choice(PLACES)}"] if random.random() < 0.3 else []
    return ["audit", file, f"{wrong}={_token(random, usual)}", *_maybe(random, "--bins", "5"), *out]


def _export(random: Random) -> list[str]:
    options = [*_maybe(random, "--methods", "robust"), *_maybe(random, "--seeds", "42")]
    return [
        "export",
        random.choice(("run", "run", "pacs", *ODD_FILES)),
        f"--to={random.choice(PLACES)}",
        *options,
    ]


def _compare(random: Random) -> list[str]:
    run = random.choice(("run", "pacs", "pacs", *ODD_FILES))
    return ["compare", run, *_maybe(random, "--dataset", "pacs_sketch", 0.6)]


def _report(random: Random) -> list[str]:
    runs = random.choices(("run", "pacs", *ODD_FILES), k=random.choice((1, 1, 2)))
    return ["report", *runs, f"--to={random.choice(PLACES)}", *_maybe(random, "--data", "own", 0.2)]


def _data(random: Random) -> list[str]:
    names = ("digits", "pacs", "domains", "civilcomments", "hatexplain", "cifar10", *TOKENS)
    return ["data", random.choice(names), f"--to={random.choice(PLACES)}"]


COMMANDS: tuple[Callable[[Random], list[str]], ...] = (
    _only_report,
    _audit,
    _export,
    _compare,
    _report,
    _data,
)

TARGETS = [
    Target("specs", 5000, _tables, attempt_table),
    Target("dry-runs", 4000, lambda folder: None, attempt_dry),
    Target("options", 2000, _seeds, attempt_options),
]


def attack(scale: float, seed: int, progress: Progress) -> list[Tally]:
    """Specs and options."""
    return run_attack(TARGETS, scale, seed, progress)
