"""Tables of random predictions in parquet files, for tests of the streamed audit."""

from dataclasses import replace

import numpy as np
import pyarrow
import torch
from pyarrow import parquet

from calmoe.predictions import Predictions
from strategies import generator, random_output


def random_predictions(seed, rows, classes=3, experts=2, dtype=torch.float32):
    """Predictions that are off, with columns of every kind."""
    random = np.random.default_rng(seed)
    output = random_output(seed, rows, classes, experts, dtype=torch.float64)
    labels = torch.multinomial(output.probs.sqrt(), 1, generator=generator(seed)).squeeze(1)
    groups = {
        "site": random.choice(["north", "south", "west"], rows),
        "hard": random.random(rows) < 0.3,
        "year": random.integers(8, 12, rows),
        "age": random.random(rows),
        "name": np.array([f"row {i}" for i in range(rows)]),
    }
    output = type(output)(*(part.to(dtype) for part in output))
    return Predictions(output=output, labels=labels, groups=groups)


def columns(predictions):
    """As a table names them."""
    probs, routing, experts = (part.exp().numpy() for part in predictions.output)
    table = {f"prob_{c}": probs[:, c] for c in range(probs.shape[1])}
    table |= {f"routing_{k}": routing[:, k] for k in range(routing.shape[1])}
    for k in range(experts.shape[1]):
        table |= {f"expert_{k}_prob_{c}": experts[:, k, c] for c in range(experts.shape[2])}
    return table | predictions.groups | {"label": predictions.labels.numpy()}


def write(path, predictions, **options):
    parquet.write_table(pyarrow.table(columns(predictions)), path, **options)
    return path


def part(predictions, first, last):
    return predictions.take(np.arange(first, last))


def without_groups(predictions):
    return replace(predictions, groups={})
