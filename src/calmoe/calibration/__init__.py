"""Calibrators: fitted on validation rows, applied to any rows, kept as JSON."""

from calmoe.calibration.calibrator import Calibrator
from calmoe.calibration.identity import Identity
from calmoe.calibration.isotonic import TopLabelIsotonic
from calmoe.calibration.matrix_scaling import MatrixScaling
from calmoe.calibration.routing_recalibration import RoutingRecalibration
from calmoe.calibration.temperature import (
    Frontier,
    PerExpertTemperature,
    ShiftedTemperature,
    Temperature,
    frontier,
)
from calmoe.calibration.temperature_solvers import CalibrationWarning
from calmoe.calibration.vector_scaling import VectorScaling

__all__ = [
    "CalibrationWarning",
    "Calibrator",
    "Frontier",
    "Identity",
    "MatrixScaling",
    "PerExpertTemperature",
    "RoutingRecalibration",
    "ShiftedTemperature",
    "Temperature",
    "TopLabelIsotonic",
    "VectorScaling",
    "frontier",
]
