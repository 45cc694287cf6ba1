"""What takes seconds to import is imported when it is needed: one new process tries it all in turn."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pathlib import Path

import calmoe.auditing
assert not {"matplotlib", "jinja2"} & set(sys.modules)  # both load when a report is saved

from calmoe.experiments.run import Run
from calmoe.report.sources import read_targets
opened = Run.open(Path(sys.argv[1]))
assert opened.rows
assert list(opened.read_models())
assert "calmoe.training.trainer" not in sys.modules

import calmoe.metrics
assert "torchmetrics" not in sys.modules
assert "CalibrationError" in calmoe.metrics.__all__
calmoe.metrics.CalibrationError
assert "torchmetrics" in sys.modules
"""


@pytest.mark.slow
def test_what_is_heavy_is_imported_late(reference):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(reference)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
