"""Compares the bound of `remat bound` with the optimum of the linear program behind it. Not part of the default
tests.

    python3 -m venv /tmp/solvers && /tmp/solvers/bin/pip install highspy==1.15.1
    cargo build --features cli
    /tmp/solvers/bin/python tests/bound/solvers.py target/debug/remat ../shared/data/traces/unet.log.gz ...

For each trace and budget, HiGHS solves the linear program that `--lp` writes. The script fails if the bound is
above the optimum of HiGHS, which would prove the bound wrong, or more than LOST below the optimum.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import highspy

BUDGETS = [80, 60, 50, 40, 30]
# Tolerance of excesses. HiGHS is feasible and optimal to 1e-7.
TOLERANCE = 1e-6
LOST = 2e-3


def optimum(path):
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("time_limit", 120.0)
    if solver.readModel(str(path)) == highspy.HighsStatus.kError:
        sys.exit(f"HiGHS cannot read {path}")
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        return solver.getObjectiveValue()
    if status == highspy.HighsModelStatus.kTimeLimit:
        return None
    sys.exit(f"{path}: {solver.modelStatusToString(status)}")


def main(remat, traces):
    lost, bad, unsolved = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        problem, found = Path(folder) / "problem.lp", Path(folder) / "found.json"
        for trace in traces:
            for budget in BUDGETS:
                command = [remat, "bound", trace, "--budget", f"{budget}%", "--lp", problem, "--json", found]
                done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                if done.returncode != 0:
                    print(f"{Path(trace).name} at {budget} %: {done.stderr.strip()}")
                    continue
                bound = json.loads(found.read_text())["least_excess"]
                best = optimum(problem)
                if best is None:
                    unsolved += 1
                    print(f"{Path(trace).name:22} {budget} %: bound {bound:.6f}, HiGHS ran out of time", flush=True)
                    continue
                is_bad = not -TOLERANCE <= best - bound <= LOST
                bad += is_bad
                lost.append(best - bound)
                told = "  BAD" if is_bad else ""
                print(f"{Path(trace).name:22} {budget} %: bound {bound:.6f}, optimum {best:.6f}{told}", flush=True)
    if lost:
        print(f"{len(lost)} problems solved, {unsolved} not: lost {sum(lost) / len(lost):.2e} in the mean, {max(lost):.2e} at most")
    return 1 if bad or not lost else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
