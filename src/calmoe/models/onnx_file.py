"""A network as one ONNX file: preparation, views and temperatures inside, checked against PyTorch."""

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calmoe.arrays import as_numpy
from calmoe.calibration.identity import Identity
from calmoe.calibration.log_linear import Weights, linear_scores
from calmoe.calibration.matrix_scaling import MatrixScaling
from calmoe.calibration.temperature import Temperature
from calmoe.calibration.vector_scaling import VectorScaling
from calmoe.errors import InputError
from calmoe.files import write_whole
from calmoe.models.deployed import Deployed
from calmoe.models.inputs import ImageInputs, TextInputs
from calmoe.models.model import Model
from calmoe.models.network_model import NetworkModel
from calmoe.text_encoders import PADDING, load_tokenizer

OUTPUTS = ("probs", "routing", "expert_probs")
TOLERANCE = 1e-5
TRIED = (1, 7)  # rows: the file must take any number


class Exported(nn.Module):
    """Probabilities in place of logarithms, after a repair that is linear in these."""

    def __init__(self, deployed: Deployed, repair: Weights | None) -> None:
        super().__init__()
        self.deployed = deployed
        self.repair = None if repair is None else tuple(map(torch.as_tensor, repair))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        output = self.deployed(rows)
        log_probs = output.log_probs
        if self.repair is not None:
            log_probs = linear_scores(log_probs.double(), *self.repair).log_softmax(1).float()
        return log_probs.exp(), output.log_routing.exp(), output.expert_log_probs.exp()


def _repair(model: NetworkModel) -> Weights | None:
    """What the model's calibrator does to log-probabilities; None where it does nothing, or there is none."""
    fitted = None if model.calibrator is None else model.calibrator.fitted
    match fitted:
        case None | Identity():
            return None
        case Temperature():
            classes = len(model.classes)
            return Weights(np.full(classes, 1 / fitted.temperature_), np.zeros(classes))
        case VectorScaling():
            return Weights(fitted.weights_, fitted.intercepts_)
        case MatrixScaling():
            return Weights(fitted.matrix_, fitted.intercepts_)
    assert model.calibrator is not None
    raise InputError(
        f"the model carries {model.calibrator.title}, which an ONNX file cannot hold: export the model that "
        "it was made from"
    )


def write_onnx(model: Model, path: str | Path) -> float:
    """Write `path`; the largest difference in a probability from PyTorch's, which is below 1e-5.

    The file takes `rows`: uint8 images [N, C, H, W] of the model's size, int32 token ids [N, L] with −1 after
    a text's end, or float32 numbers. It gives `probs` [N, C], `routing` [N, K], `expert_probs` [N, K, C].
    """
    if not isinstance(model, NetworkModel):
        raise InputError("a model of tables has no ONNX file: use its folder, calmoe.load(folder)")
    repair = _repair(model)
    if Path(path).suffix != ".onnx":
        raise InputError(f"{path}: an ONNX file's name ends in .onnx")
    onnx, onnxruntime = _libraries()
    exported = Exported(model.deployed, repair).eval()
    with tempfile.TemporaryDirectory() as folder, _quiet():
        draft = Path(folder) / "model.onnx"
        torch.onnx.export(
            exported,
            (_tried(model, 3),),
            draft,
            input_names=["rows"],
            output_names=list(OUTPUTS),
            dynamic_shapes={"rows": {0: torch.export.Dim("rows", min=1)}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        document = onnx.load(draft)
        note = {"classes": model.classes, "dataset": model.card.dataset, "temperature": model.temperature}
        onnx.helper.set_model_props(document, {"calmoe": json.dumps(note)})
        data: bytes = document.SerializeToString()
    difference = _compared(onnxruntime, data, exported, model)
    if not difference < TOLERANCE:
        raise InputError(f"the ONNX file differs from PyTorch by {difference:.2g}: update torch and onnx")
    write_whole(path, data)
    return difference


def _compared(onnxruntime: Any, data: bytes, exported: Exported, model: NetworkModel) -> float:
    """The largest difference in a probability over some random rows."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    worst = 0.0
    for count in TRIED:
        rows = _tried(model, count)
        with torch.no_grad():
            ours = exported(rows)
        theirs = session.run(list(OUTPUTS), {"rows": as_numpy(rows)})
        gaps = [np.abs(as_numpy(a) - b).max() for a, b in zip(ours, theirs, strict=True)]
        worst = max(worst, float(np.max(gaps)))
    return worst


def _tried(model: NetworkModel, count: int) -> Tensor:
    """Random rows of the model's kind."""
    source = torch.Generator().manual_seed(count)
    shape = (count, *model.inputs.shape)
    if isinstance(model.inputs, ImageInputs):
        return torch.randint(256, shape, generator=source, dtype=torch.uint8)
    if isinstance(model.inputs, TextInputs):
        assert model.encoder is not None
        known = len(load_tokenizer(model.encoder))
        rows = torch.randint(known, shape, generator=source, dtype=torch.int32)
        ends = torch.randint(2, shape[1], (count, 1), generator=source)
        return rows.masked_fill(torch.arange(shape[1]) >= ends, PADDING)
    return torch.randn(shape, generator=source)


def _libraries() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise InputError("an ONNX file needs more libraries: pip install 'calmoe[onnx]'") from None
    return onnx, onnxruntime


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's own reports."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
