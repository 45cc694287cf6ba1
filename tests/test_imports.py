"""What takes seconds to import is imported when it is needed: one new process tries it all in turn."""

import subprocess
import sys

import pytest

from sizes import at_size

SCRIPT = """
import sys
from pathlib import Path

sys.path[:0] = sys.argv[2:]

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
def test_what_is_heavy_is_imported_late(reference, tmp_path):
    """At the small size a light torchmetrics takes the place of the real one."""
    (tmp_path / "torchmetrics.py").write_text("class Metric:\n    pass\n")
    command = [sys.executable, "-c", SCRIPT, str(reference), *at_size([str(tmp_path)], [])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_modules_and_public_names_are_found_when_asked_for():
    """`import calmoe` alone, then any of them: in a process where nothing else is loaded."""
    script = """
import calmoe
assert calmoe.mixture.MixtureHead is calmoe.MixtureHead
assert calmoe.views.View(down=1).down == 1
for name in ("nothing", "_nothing", "__wrapped__"):
    assert not hasattr(calmoe, name)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
