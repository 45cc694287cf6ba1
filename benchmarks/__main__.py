import sys

from benchmarks import audit, metrics, objectives, reading, step_profile

for module in (metrics, objectives, reading, step_profile):
    module.main()
sys.argv[1:] = ["--speed"]  # whether it is honest is another question: `python -m benchmarks.audit`
audit.main()
