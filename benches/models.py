#!/usr/bin/env python3
"""Every network of `remat train` under budgets: the table of docs/guide/src/reference/figures.md.

    cargo build --release
    python3 benches/models.py

Each network trains for ten steps at 100, 60, 40 and 30 % of the memory that it takes without evictions. If a budget is
too small, the smallest sufficient budget is used instead. The exit code is 1 if parameters differ in any bit or a run
exceeds its budget.

The column of leaves shows parameters and optimizer state, which cannot be evicted, as a share of
the memory at 100 %. The slowdown is the median step divided by the median step at 100 %, in the
fastest of --rounds rounds.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Network, shape in words, options. Activations are most of the memory.
CASES = [
    ("mlp", "2048 of 1x8x8", "mlp --batch 2048"),
    ("resnet20", "64 of 3x32x32", "resnet20 --data synthetic:3x32x32 --batch 64"),
    ("resnet32", "64 of 1x8x8", "resnet32 --batch 64"),
    ("resnet110", "64 of 1x8x8", "resnet110 --batch 64"),
    ("resnet1202", "64 of 1x8x8", "resnet1202 --batch 64"),
    ("resnet18", "64 of 3x32x32", "resnet18 --data synthetic:3x32x32 --batch 64"),
    ("resnet50", "32 of 3x32x32", "resnet50 --data synthetic:3x32x32 --batch 32"),
    ("densenet121", "8 of 3x32x32", "densenet121 --data synthetic:3x32x32 --batch 8"),
    ("unet", "16 of 3x64x64", "unet --data synthetic:3x64x64 --batch 16"),
    ("inceptionv4", "72 of 3x80x80", "inceptionv4 --data synthetic:3x80x80 --batch 72"),
    ("gpt", "16 of 128 bytes, 4 layers of 128", "gpt --layers 4 --width 128 --heads 4 --context 128 --batch 16"),
    ("vit", "32 of 3x32x32", "vit --data synthetic:3x32x32 --batch 32"),
    ("lstm", "64 of 64 bytes, 2 layers of 128", "lstm --layers 2 --width 128 --context 64 --batch 64"),
    ("treelstm", "32 trees", "treelstm --batch 32"),
    ("unrolled-gan", "512 points", "unrolled-gan --batch 512"),
]
HALF = ["resnet20", "gpt"]
SHARES = [100, 60, 40, 30]
STEPS = 10


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remat", default=str(ROOT / "target/release/remat"), help="the program")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", action="append", metavar="MODEL", help="instead of all")
    return parser.parse_args()


def train(options, args, budget):
    """The report, or the message of a budget that is too small."""
    command = [options.remat, "train", *args.split(), "--steps", str(STEPS), "--no-test", "--quiet", "--json", "-"]
    done = subprocess.run([*command, "--budget", budget], capture_output=True, text=True)
    if done.returncode == 2 and "passes" in done.stderr:
        return None, done.stderr
    if done.returncode != 0:
        sys.exit(f"remat train {args} --budget {budget}: {done.stderr}")
    return json.loads(done.stdout), None


def main():
    options = arguments()
    failed = False
    print("| network | batch | without evictions | leaves | smallest budget | at 60 % | 40 % | 30 % or smallest |")
    print("|---|---|---|---|---|---|---|---|")
    for name, batch, args in CASES:
        if options.only and name not in options.only:
            continue
        began = time.monotonic()
        _, message = train(options, args, "1%")
        least = float(re.search(r"--budget ([0-9.]+)%", message).group(1))
        full, cells, digests = None, [], set()
        for share in SHARES:
            taken = max(share, least)
            reports = [train(options, args, f"{taken:g}%")[0] for _ in range(options.rounds)]
            report = min(reports, key=lambda report: report["seconds_per_step_median"])
            digests |= {report["params_sha256"] for report in reports}
            if report["peak_bytes"] > report["budget_bytes"]:
                print(f"{name}: {report['peak_bytes']} of {report['budget_bytes']} bytes", file=sys.stderr)
                failed = True
            full = full or report
            if share < 100:
                slowdown = report["seconds_per_step_median"] / full["seconds_per_step_median"]
                at = "" if taken == share else f" ({taken:g} %)"
                cells.append(f"{slowdown:.2f}{at}")
        if len(digests) > 1:
            print(f"{name}: parameters differ: {digests}", file=sys.stderr)
            failed = True
        peak = full["unbudgeted_peak_bytes"]
        leaves = 100 * full["state_bytes"] / peak
        print(f"| {name} | {batch} | {peak / 2**20:.1f} MiB | {leaves:.0f} % | {least:g} % | {' | '.join(cells)} |", flush=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print("\n| activations in bf16 | f32 | bf16 | ratio |\n|---|---|---|---|")
    for name, _, args in CASES:
        if name not in HALF or (options.only and name not in options.only):
            continue
        peaks = [train(options, f"{args} --precision {precision}", "100%")[0]["unbudgeted_peak_bytes"]
                 for precision in ["f32", "bf16"]]
        ratio = peaks[1] / peaks[0]
        failed = failed or ratio > 0.6
        print(f"| {name} | {peaks[0] / 2**20:.1f} MiB | {peaks[1] / 2**20:.1f} MiB | {ratio:.2f} |")
    return failed


if __name__ == "__main__":
    sys.exit(main())
