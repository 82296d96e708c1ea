#!/usr/bin/env python3
"""Excess of policies on traces of the DTR paper, compared with the lower bound: the table of docs/benchmarks.md.

    cargo build --release --features cli
    python3 benches/learned.py ../shared/data/traces
    python3 benches/learned.py ../shared/data/traces --arena --dead linger

The excess of a run is the cost of its recomputation divided by the cost of the trace. E is the mean excess over budgets
from 90 % to 20 % of the peak. A run that fails, or recomputes more than the cost of the trace, counts as an excess of 1.
The ratio is the sum of excesses divided by the sum of bounds, at the budgets that the bound allows. All figures except
seconds are computed from counts, so they are the same on every machine and in every run.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POLICIES = ["dtr", "dtr-eq", "ancestors", "learned", "learned:portfolio", "learned:search"]
BUDGETS = "90%,80%,70%,60%,50%,40%,30%,20%"
CLASSICAL = ["dtr", "dtr-eq"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, help="logs, or folders of them")
    parser.add_argument("--remat", default=str(ROOT / "target/release/remat"), help="the program")
    parser.add_argument("--policy", help="instead of all, by commas")
    parser.add_argument("--arena", action="store_true", help="with places in an arena; otherwise bytes are counted")
    parser.add_argument("--dead", default="drop", help="fate of the dead: drop, keep or linger")
    parser.add_argument("--points", action="store_true", help="the excess at each point as well")
    parser.add_argument("--jobs", default="2", help="replays at once")
    return parser.parse_args()


def logs(paths):
    for path in paths:
        yield from sorted(path.glob("*.log*")) if path.is_dir() else [path]


def sweep(options, policy):
    command = [options.remat, "sweep", *map(str, logs(options.traces)), "--policy", policy, "--budget", BUDGETS]
    command += ["--arena", "bfc" if options.arena else "bytes", "--dead", options.dead]
    command += ["--jobs", options.jobs, "--quiet", "--json", "-"]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"{' '.join(command)}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()], time.monotonic() - start


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def number(value, digits=4):
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text


def line(cells):
    print("| " + " | ".join(cells) + " |")


def main():
    options = arguments()
    policies = options.policy.split(",") if options.policy else POLICIES
    excess, least, seconds = defaultdict(dict), {}, {}
    for policy in policies:
        rows, seconds[policy] = sweep(options, policy)
        for row in rows:
            point = (row["trace"], row["budget_ratio"])
            cost = row["slowdown"]
            excess[policy][point] = None if cost is None else cost - 1
            if row["least_slowdown"] is not None:
                least[point] = row["least_slowdown"] - 1
    points = sorted(excess[policies[0]], key=lambda point: (point[0], -point[1]))
    traces = list(dict.fromkeys(trace for trace, _ in points))
    allowed = [point for point in points if point in least]

    def counted(value):
        return 1.0 if value is None else min(value, 1.0)

    def of_trace(values, trace):
        return mean(counted(values.get(point)) for point in points if point[0] == trace)

    line(["policy", *traces, "E", "to dtr", "ratio", "fails", "s"])
    line(["---"] * (len(traces) + 6))
    base = sum(least[point] for point in allowed)
    for policy in policies:
        values = excess[policy]
        each = [of_trace(values, trace) for trace in traces]
        dtr = [of_trace(excess["dtr"], trace) for trace in traces] if "dtr" in excess else None
        ratio = sum(counted(values[point]) for point in allowed) / base
        failed = sum(values[point] is None for point in allowed)
        to_dtr = number(mean(each) / mean(dtr), 2) if dtr else ""
        line([policy, *map(number, each), number(mean(each)), to_dtr, f"{ratio:.3f}", str(failed), f"{seconds[policy]:.0f}"])
    each = [of_trace(least, trace) for trace in traces]
    line(["bound", *map(number, each), number(mean(each)), "", "1.000", "0", ""])

    if options.points:
        budgets = list(dict.fromkeys(ratio for _, ratio in points))
        print()
        line(["trace", "policy", *map(number_of_share, budgets)])
        line(["---"] * (len(budgets) + 2))
        for trace in traces:
            for policy in [*policies, "bound"]:
                values = excess.get(policy, least)
                cells = [values.get((trace, ratio)) for ratio in budgets]
                line([trace, policy, *("fails" if cell is None else number(cell) for cell in cells)])

    last = policies[-1]
    misses = [point for point in allowed if counted(excess[last][point]) > max(1.25 * least[point], least[point] + 0.01)]
    print(f"\n{last}: {len(misses)} of {len(allowed)} points above max(1.25 * bound, bound + .01):")
    for trace, ratio in misses:
        of, bound = counted(excess[last][trace, ratio]), least[trace, ratio]
        print(f"- {trace} at {ratio:.0%}: {number(of)}, bound {number(bound)}, gap {number(of - bound)}")
    if all(policy in excess for policy in CLASSICAL):
        for policy in policies:
            if policy in CLASSICAL:
                continue
            worse = [
                (point, counted(excess[policy][point]) - best)
                for point in points
                for best in [min(counted(excess[other][point]) for other in CLASSICAL)]
                if counted(excess[policy][point]) > best + 1e-6
            ]
            said = ", ".join(f"{trace} {ratio:.0%} by {number(by)}" for (trace, ratio), by in worse)
            print(f"\n{policy}: {len(worse)} of {len(points)} points worse than the best of dtr and dtr-eq: {said or 'none'}")


def number_of_share(ratio):
    return f"{ratio:.0%}"


if __name__ == "__main__":
    main()
