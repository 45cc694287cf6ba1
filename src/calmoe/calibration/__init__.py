"""Calibrators: fitted on validation rows, applied to any rows, kept as JSON."""

from calmoe.calibration.routing_recalibration import RoutingRecalibration
from calmoe.calibration.temperature import (
    Frontier,
    PerExpertTemperature,
    ShiftedTemperature,
    Temperature,
    frontier,
)
from calmoe.calibration.temperature_solvers import CalibrationWarning

__all__ = [
    "CalibrationWarning",
    "Frontier",
    "PerExpertTemperature",
    "RoutingRecalibration",
    "ShiftedTemperature",
    "Temperature",
    "frontier",
]
