#!/usr/bin/env python3
"""Recomputation of learned eviction in training, compared with the lower bound.

    cargo build --release
    python3 benches/learning.py

Each network of benches/models.py is trained with the policies of --policies, at 60, 40 and 30 % of the memory that it
takes without evictions. If a budget is too small for a policy, the smallest sufficient budget is used instead. The table
shows recomputed work as a share of the work, as the mean over the first 5, 20 and 100 steps. The mean over 100 steps is
measured only if a step takes less than --fast seconds. If a step takes more than --slow seconds, only 5 steps run. The
bound is for a step in program order. "Learned in" is the time of --learn before the first step. "Step" is the median step
relative to the first policy. The rows at 100 % compare steps without evictions. The exit code is 1 if parameters differ
in any bit.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from models import CASES, ROOT

SHARES = [100, 60, 40, 30]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remat", default=str(ROOT / "target/release/remat"), help="the program")
    parser.add_argument("--policies", default="dtr-eq,learned:portfolio,learned:search", help="the first is the baseline")
    parser.add_argument("--fast", type=float, default=0.1, help="seconds of a step of which there are 100")
    parser.add_argument("--slow", type=float, default=1.0, help="seconds of a step of which there are 5")
    parser.add_argument("--only", action="append", metavar="MODEL", help="instead of all")
    return parser.parse_args()


def train(options, args, policy, budget, steps):
    """The report, or the smallest sufficient budget in percent."""
    command = [options.remat, "train", *args.split(), "--policy", policy, "--budget", budget, "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        done = subprocess.run([*command, "--no-test", "--quiet", "--json", "-", "--log", str(log)],
                              capture_output=True, text=True)
        smallest = re.search(r"--budget ([0-9.]+)%", done.stderr)
        if done.returncode == 2 and smallest:
            return None, float(smallest.group(1))
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    report = json.loads(done.stdout)
    ratios = [line["recompute_ratio"] for line in lines]
    report["means"] = {n: sum(ratios[:n]) / n for n in [5, 20, 100] if n <= len(ratios)}
    return report, None


def percent(ratio):
    return "-" if ratio is None else f"{100 * ratio:.1f}"


def main():
    options = arguments()
    policies = options.policies.split(",")
    failed = False
    columns = [f"`{policy}`: 5 / 20 / 100 steps" for policy in policies]
    times = [f"step, `{policy}`" for policy in policies[1:]]
    print(f"| network | budget | bound | {' | '.join(columns)} | {' | '.join(times)} | learned in, s |")
    print("|" + "---|" * (4 + len(columns) + len(times)))
    for name, _, args in CASES:
        if options.only and name not in options.only:
            continue
        began = time.monotonic()
        probes = [train(options, args, policy, "1%", 5)[1] for policy in policies]
        at_all, _ = train(options, args, policies[0], "100%", 6)
        seconds = at_all["seconds_per_step_median"]
        steps = 100 if seconds < options.fast else 20 if seconds < options.slow else 5
        digests = set()
        for share in SHARES:
            reports = []
            for at, policy in enumerate(policies):
                report = None
                while report is None:
                    report, least = train(options, args, policy, f"{max(share, probes[at]):g}%", steps)
                    # A budget that suffices for five steps may fail in longer runs, since greedy eviction is not monotone.
                    probes[at] = least or probes[at]
                reports.append(report)
            digests |= {report["params_sha256"] for report in reports}
            cells = []
            for report, least in zip(reports, probes):
                at = f" at {least:g} %" if least > share else ""
                cells.append(" / ".join(percent(mean) for mean in report["means"].values()) + at)
            base = reports[0]["seconds_per_step_median"]
            slower = [f"{report['seconds_per_step_median'] / base:.2f}" for report in reports[1:]]
            learned = [f"{report['learn_seconds']:.2f}" for report in reports if report["learn_seconds"] is not None]
            bound = percent(reports[-1]["least_recompute_ratio"])
            print(f"| {name} | {share} % | {bound} | {' | '.join(cells)} | {' | '.join(slower)} | {', '.join(learned)} |", flush=True)
        if len(digests) > 1:
            print(f"{name}: parameters differ: {digests}", file=sys.stderr)
            failed = True
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
