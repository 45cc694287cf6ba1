"""The images that a run's figures show, read from its dataset: of every domain, and of the worst failures."""

from pathlib import Path
from typing import Any

import numpy as np

from calmoe.data import ShiftDataset, load_dataset
from calmoe.errors import InputError
from calmoe.methods import in_order, source
from calmoe.report.examples import examples
from calmoe.report.sources import Sources


def has_images(sources: Sources) -> bool:
    """Whether the runs are on images, as far as their records say."""
    return sources.record.spec.model.backbone != "encoder"


def run_dataset(sources: Sources, data: Path | None) -> ShiftDataset:
    """The data of the runs, whose images the figures show."""
    record = sources.record
    spec = record.spec
    if not has_images(sources):
        raise InputError("the data are texts, not images")
    dataset = load_dataset(spec.dataset, data, spec.protocol, spec.target)
    if dataset.fingerprint() != record.fingerprint:
        where = f" in {data}" if data else ""
        raise InputError(f"the data{where} are not those of the run: give its own with --data DIR")
    if not dataset.images:
        raise InputError("the data are not images")
    return dataset


def domain_images(dataset: ShiftDataset, target: str) -> dict[str, dict[str, np.ndarray]]:
    """The first image [H, W, C] of every class in every domain; the target comes last."""
    images: dict[str, dict[str, np.ndarray]] = {}
    for split, domains in (
        (dataset.validation, dataset.validation.groups["domain"]),
        (dataset.test, np.full(len(dataset.test), f"{target} (target)")),
    ):
        for row, (domain, name) in enumerate(zip(domains, split.groups["class"], strict=True)):
            by_class = images.setdefault(str(domain), {})
            if name not in by_class:
                by_class[str(name)] = split.inputs[row].permute(1, 2, 0).numpy()
    return images


def run_examples(sources: Sources, dataset: ShiftDataset) -> dict[str, Any]:
    """The test images that Vanilla MoE gets wrong with the most confidence, and what all methods say."""
    seed = min(c["seed"] for c in sources.curves)
    answers = {
        model.method: model.test.output.probs
        for each in sources.runs
        for model in each.run.read_models(seeds=[seed])
        if (source(model.method), seed) in each.trained
    }
    test = dataset.test
    names = [f"human_{c}" for c in range(dataset.num_classes)]
    known = all(name in test.groups for name in names)
    hard = sources.record.hard
    return examples(
        test.inputs,
        test.labels,
        dataset.class_names,
        {method: answers[method] for method in in_order(answers)},
        human=np.stack([test.groups[name] for name in names], axis=1) if known else None,
        hard=test.groups.get(hard) if hard else None,
        agreement=test.groups.get("agreement"),
        seed=seed,
    )
