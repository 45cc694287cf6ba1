"""What captions call a run, and what in it differs from the paper or the preset."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from calmoe.data import DATASETS
from calmoe.experiments.spec import RunSpec, load_preset, preset_names, setting_text
from calmoe.experiments.sweep import unread
from calmoe.report.published import backbone_note, is_published, table_of
from calmoe.training.settings import ModelSettings

BACKBONE_SETTINGS = ("backbone", "variant", "weights")


def run_title(spec: RunSpec, table: str = "", but: Collection[str] = ()) -> str:
    """What captions call a run: its name, and what differs from the paper or the preset.

    >>> from calmoe.experiments.spec import with_settings
    >>> run_title(with_settings(load_preset("digits"), ["epochs=30"]))
    'digits, epochs=30, warmup=12'
    """
    return ", ".join(filter(None, [spec.name, *changes(spec, table, but)]))


def changes(spec: RunSpec, table: str = "", but: Collection[str] = ()) -> tuple[str, str]:
    """The backbone beside the paper's, and the settings that are not the preset's; empty where they agree.

    table: of the paper, if not the run's own; but: settings that are swept. A dataset without a preset has
    nothing to differ from, and what no method reads changes nothing.

    >>> from calmoe.experiments.spec import with_settings
    >>> changes(with_settings(load_preset("digits"), ["forget_moments=true", "experts=2"]))
    ('', 'experts=2, forget_moments=true')
    """
    table = table or table_of(spec.dataset, spec.target)
    named = BACKBONE_SETTINGS if is_published(table) else ()
    changed = changed_settings(spec) if spec.dataset in preset_names() else {}
    left_out = {*named, *but, *unread(spec, changed)}
    settings = ", ".join(
        f"{name}={Path(value).name if name == 'weights' else setting_text(value)}"
        for name, value in changed.items()
        if name not in left_out
    )
    return backbone_note(table, _backbone(spec.model), bool(spec.model.weights)), settings


def _backbone(model: ModelSettings) -> str:
    depth = model.backbone.removeprefix("resnet")
    if depth.isdecimal():  # the shallow ones have no variants
        return f"ResNet-{depth}" + (f" {model.variant}" if int(depth) >= 50 else "")
    return Path(model.weights or model.backbone).name


def changed_settings(spec: RunSpec) -> dict[str, Any]:
    """The settings that are not the preset's; where the epochs are not, the warm-up too.

    A dataset without a preset has calmoe's defaults; one that is not known has nothing to differ from.
    """
    if spec.dataset not in DATASETS:
        return {}
    here, there = spec.as_table(), load_preset(spec.dataset).as_table()
    changed: dict[str, Any] = {}
    for section in ("model", "training"):
        own, preset = ({**t[section].pop("own", {}), **t[section]} for t in (here, there))
        changed |= {
            name: value
            for name, value in own.items()
            if value != preset.get(name) or (name == "warmup" and own["epochs"] != preset["epochs"])
        }
    return changed
