"""What captions call a run, and what in it is not as in the paper or the preset."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calmoe.experiments.spec import load_preset, run_name, setting_text
from calmoe.report.published import backbone_note, is_published, table_of

OF_BACKBONE = ("backbone", "variant", "weights")


def run_title(spec: Mapping[str, Any], table: str = "", but: str = "") -> str:
    """What captions call a run: its name, and what is not as in the paper or the preset.

    >>> model = {"backbone": "resnet50", "variant": "v1", "weights": "resnet50.safetensors"}
    >>> training = {"epochs": 30, "warmup": 12}
    >>> run_title({"dataset": "pacs", "target": "sketch", "model": model, "training": training})
    'pacs-sketch, ResNet-50 v1 (the paper: ResNet-18), epochs=30, warmup=12'
    """
    return ", ".join(filter(None, [run_name(spec), *changes(spec, table, but)]))


def changes(spec: Mapping[str, Any], table: str = "", but: str = "") -> tuple[str, str]:
    """The backbone beside the paper's, and the settings that are not the preset's; empty where they agree.

    table: of the paper, if not the run's own; but: a setting that is swept.

    >>> from calmoe.experiments.spec import with_settings
    >>> changes(asdict(with_settings(load_preset("digits"), ["forget_moments=true", "experts=2"])))
    ('', 'experts=2, forget_moments=true')
    """
    table = table or table_of(spec["dataset"], spec.get("target", ""))
    told = OF_BACKBONE if is_published(table) else ()
    settings = ", ".join(
        f"{name}={Path(value).name if name == 'weights' else setting_text(value)}"
        for name, value in changed_settings(spec).items()
        if name not in (*told, but)
    )
    model = spec["model"]
    return backbone_note(table, _backbone(model), bool(model.get("weights"))), settings


def _backbone(model: Mapping[str, Any]) -> str:
    depth = model["backbone"].removeprefix("resnet")
    if depth.isdecimal():  # the shallow ones have no variants
        return f"ResNet-{depth}" + (f" {model['variant']}" if int(depth) >= 50 else "")
    return Path(model.get("weights") or model["backbone"]).name


def changed_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run's table, what is not the preset's. Where epochs are not, the warm-up is told as well."""
    preset = asdict(load_preset(spec["dataset"]))
    found: dict[str, Any] = {}
    for section in ("model", "training"):
        here, there = (json.loads(json.dumps(table.get(section, {}))) for table in (spec, preset))
        found |= {
            name: value
            for name, value in here.items()
            if value != there.get(name) or (name == "warmup" and here["epochs"] != there["epochs"])
        }
    return found
