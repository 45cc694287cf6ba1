"""How much sooner two processes finish the digits plan than one: `python -m benchmarks.jobs`.

Commands take turns, each in a process of its own, from an empty folder to the table of results; imports
included. The results must be the same to the last byte. Wall time needs idle cores to mean anything: CPU
seconds, of all processes, tell what the second one costs on a busy machine, too.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL = 1.6  # as fast as one process, on two idle cores


def timed(jobs: int, out: Path, settings: list[str]) -> tuple[float, float]:
    """Seconds of the wall clock and of CPU that `calmoe run digits` takes."""
    options = [option for setting in settings for option in ("--set", setting)]
    command = [sys.executable, "-m", "calmoe", "run", "digits", f"--out={out}", f"--jobs={jobs}", *options]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="such as epochs=10")
    given = parser.parse_args()
    seconds: dict[int, list[tuple[float, float]]] = {1: [], given.jobs: []}
    results: set[bytes] = set()
    for _ in range(given.rounds):
        for jobs, times in seconds.items():
            with tempfile.TemporaryDirectory() as place:
                times.append(timed(jobs, Path(place) / "run", given.set))
                results.add((Path(place) / "run" / "results.jsonl").read_bytes())
    assert len(results) == 1, "the results differ"
    medians = {
        jobs: [statistics.median(each) for each in zip(*times, strict=True)]
        for jobs, times in seconds.items()
    }
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {given.rounds} rounds; same results")
    print("| jobs | wall, s | CPU, s | times as fast as one |\n| ---: | ---: | ---: | ---: |")
    for jobs, (wall, busy) in medians.items():
        print(f"| {jobs} | {wall:.1f} | {busy:.1f} | {medians[1][0] / wall:.2f} |")
    print(f"goal: {GOAL} times as fast on two idle cores")


if __name__ == "__main__":
    main()
