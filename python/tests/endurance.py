"""Thousands of training steps under a budget: the tables of the engine and the memory of the process stay flat.

    python tests/endurance.py                 10,000 steps of each model: some minutes
    python tests/endurance.py --steps 2000 --models cnn

A tenth of the steps comes first, in which steps are recognized and evictions are searched. Afterwards, a table may
grow by a tenth, and the memory of the process by 8 MiB. Ends with exit code 1 if one grows more, or if the result has
other bits than plain PyTorch's.
"""

import argparse
import sys

import models
import torch
from bits import bits

import remat

MIB = 1 << 20
TABLES = ("tensors", "storages", "paths")


def resident():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def run(name, steps, share):
    """Trains under a share of the bytes that a step takes. Returns what has grown, or None if nothing has."""
    full = remat.suggest(models.Training(name).step).peak_bytes
    training = models.Training(name)
    budget = full * share // 100
    with remat.budget(budget) as run:
        for done in range(1, steps + 1):
            training.step()
            if done == steps // 10:
                early, before = run.stats(), resident()
        late, after = run.stats(), resident()
    print(
        f"{name}: {steps:,} steps in {share} % of {full / MIB:.2f} MiB; {late.evictions:,} evictions, "
        f"{100 * late.recompute_ratio:.1f} % recomputed; resident {before / MIB:.1f}, at the end {after / MIB:.1f} MiB; "
        + ", ".join(f"{table} {getattr(early, table):,}, at the end {getattr(late, table):,}" for table in TABLES),
        flush=True,
    )
    plain = models.Training(name)
    for _ in range(steps):
        plain.step()
    if bits([*training.model.parameters(), training.losses]) != bits([*plain.model.parameters(), plain.losses]):
        return "other bits than without a budget"
    if not late.evictions:
        return "nothing was evicted"
    for table in TABLES:
        if getattr(late, table) > 1.1 * getattr(early, table) + 16:
            return table
    return "the memory of the process" if after > before + 8 * MIB else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--share", type=int, default=60, help="budget in percent of the bytes of a step")
    parser.add_argument("--models", nargs="+", default=list(models.MODELS), choices=list(models.MODELS), metavar="NAME")
    args = parser.parse_args()
    torch.set_num_threads(1)
    grown = {name: run(name, args.steps, args.share) for name in args.models}
    for name, what in grown.items():
        if what:
            print(f"{name}: {what}")
    sys.exit(any(grown.values()))


if __name__ == "__main__":
    main()
