#!/usr/bin/env python3
"""Training on a GPU: `remat train` against PyTorch eager and torch.utils.checkpoint, in one run.

    cargo build --release --features cuda
    python3 benches/gpu.py | tee benches/gpu-$(hostname).md

For each network and precision: milliseconds of a step and most bytes of tensors in use, unbudgeted, at the
budget that checkpointing takes, and at 60, 40 and 25 % of the peak; then the largest batch that trains in
--memory. Of remat it is the median step, data drawn and the loss read back as in all training; of PyTorch the
mean of steps that copy one and the same batch from pinned memory and never read the loss: what differs is to
PyTorch's advantage. PyTorch counts the tensors of its allocator, as remat counts its arena's; neither counts
the driver's own memory. PyTorch is measured in processes of its own, so that neither side has the other's
memory in its way. The exit code is 1 if parameters depend on a budget.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

STEPS, WARM_UP = 20, 5
ROOT = Path(__file__).resolve().parent.parent

# Network, images as channels x height x width, images a step.
CASES = [("resnet50", "3x224x224", 64), ("resnet1202", "3x32x32", 64), ("resnet20", "3x32x32", 128)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remat", default=str(ROOT / "target/release/remat"), help="the program")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try this script")
    parser.add_argument("--memory", default="16GiB", help="for the largest batch")
    parser.add_argument("--case", action="append", metavar="MODEL,CxHxW,BATCH", help="instead of all")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--pytorch", help=argparse.SUPPRESS)  # What a process of its own measures.
    return parser.parse_args()


# -- PyTorch, in a process of its own ------------------------------------------------------------------


def pytorch(job):
    """Milliseconds of a step and peak bytes, as a line of JSON."""
    import time

    import torch
    from pytorch_models import build
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    device = torch.device(job["device"])
    on_gpu = device.type == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = job["tf32"]
    if on_gpu and job.get("memory"):
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, job["memory"] / total))
    torch.manual_seed(1)
    channels, height, width = job["shape"]
    layers = [layer.to(device) for layer in build(job["model"], channels, (height, width), 10)]
    parameters = [p for layer in layers for p in layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)
    images = torch.randn(job["batch"], channels, height, width)
    labels = torch.randint(10, (job["batch"],))
    if on_gpu:
        images, labels = images.pin_memory(), labels.pin_memory()

    def step():
        x, y = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        for layer in layers:
            keeps = job["checkpoint"] and any(True for _ in layer.parameters()) and layer is not layers[-1]
            x = checkpoint(layer, x, use_reentrant=False) if keeps else layer(x)
        loss = F.cross_entropy(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def wait():
        if on_gpu:
            torch.cuda.synchronize()

    try:
        for _ in range(job["warm_up"]):
            step()
        wait()
        start = time.perf_counter()
        for _ in range(job["steps"]):
            step()
        wait()
        seconds = (time.perf_counter() - start) / job["steps"]
    except torch.cuda.OutOfMemoryError:
        return None
    name = torch.cuda.get_device_name(device) if on_gpu else "cpu"
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else None
    return {"ms": 1e3 * seconds, "peak": peak, "device": name, "torch": torch.__version__}


def in_pytorch(options, **job):
    job = {"device": options.device, "warm_up": WARM_UP, "steps": options.steps, **job}
    command = [options.python, __file__, "--pytorch", json.dumps(job)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"PyTorch failed at {job}")
    return json.loads(done.stdout)


# -- remat ----------------------------------------------------------------------------------------------


def in_remat(options, model, shape, batch, tf32, budget, *more):
    """The report of a few steps; None if the budget is too small, or was for too much recomputing."""
    command = [options.remat, "train", model, "--device", options.device, "--quiet", "--json", "-"]
    command += ["--data", f"synthetic:{shape}", "--batch", str(batch), "--budget", str(budget)]
    command += ["--steps", str(WARM_UP + options.steps), *(["--tf32"] if tf32 else []), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode == 2 and ("out of memory" in done.stderr or "recomput" in done.stderr):
        return None
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    report = json.loads(done.stdout)
    return {"ms": 1e3 * report["seconds_per_step_median"], "peak": report["peak_bytes"], **report}


def largest(fits, start):
    """The largest batch that fits, to about 5 %, if it fits whenever a larger one does."""
    if not fits(start):
        return 0
    low, high = start, 2 * start
    while fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 20):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# -- the table ------------------------------------------------------------------------------------------


def size(text):
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    return int(float(text[:-3]) * units[text[-3:]])


def row(name, result, baseline, digests=None):
    if result is None:
        return print(f"| {name} | does not fit | | | |")
    peak = "" if result["peak"] is None else f"{result['peak'] / 2**20:.0f}"
    digest = ""
    if digests is not None:
        digests.add(result["params_sha256"])
        digest = result["params_sha256"][:12]
    print(f"| {name} | {result['ms']:.1f} | {result['ms'] / baseline['ms']:.3f} | {peak} | {digest} |", flush=True)


def compare(options, model, shape, batch, tf32):
    sizes = [int(n) for n in shape.split("x")]
    eager = in_pytorch(options, model=model, shape=sizes, batch=batch, tf32=tf32, checkpoint=False)
    if eager is None:
        print(f"\n{model}, {shape}, batch {batch}: PyTorch runs out of memory")
        return True
    kept = in_pytorch(options, model=model, shape=sizes, batch=batch, tf32=tf32, checkpoint=True)
    precision = "TF32" if tf32 else "f32"
    print(f"\n### {model}, {shape}, batch {batch}, {precision}: {eager['device']}, PyTorch {eager['torch']}\n")
    print("| | ms a step | to eager | peak MiB | parameters |\n|---|---|---|---|---|")
    row("PyTorch eager (baseline)", eager, eager)
    row("torch.utils.checkpoint, each block", kept, eager)
    digests = set()
    row("remat, unbudgeted", in_remat(options, model, shape, batch, tf32, "101%"), eager, digests)
    if kept and kept["peak"]:
        at_peak = in_remat(options, model, shape, batch, tf32, kept["peak"])
        if at_peak:
            row("remat, in checkpoint's peak", at_peak, eager, digests)
    for percent in (60, 40, 25):
        at = in_remat(options, model, shape, batch, tf32, f"{percent}%")
        row(f"remat, {percent} % of its peak", at, eager, digests if at else None)
    print(f"\nSame parameters under every budget: {'yes' if len(digests) == 1 else 'NO'}.", flush=True)
    return len(digests) == 1


def largest_batches(options, model, shape, batch):
    sizes, memory = [int(n) for n in shape.split("x")], size(options.memory)

    def fits_pytorch(checkpoint):
        job = {"model": model, "shape": sizes, "tf32": True, "memory": memory, "checkpoint": checkpoint}
        return lambda n: in_pytorch(options, **{**job, "batch": n, "steps": 1, "warm_up": 1}) is not None

    def fits_remat(n):
        # Beyond three times the work, it is no longer training.
        few = argparse.Namespace(**{**vars(options), "steps": 1})
        return in_remat(few, model, shape, n, True, memory, "--recompute-limit", "3") is not None

    eager = largest(fits_pytorch(False), batch // 8)
    print(f"\nLargest batch of {model}, {shape}, in {options.memory}, TF32: PyTorch eager {eager}", end="", flush=True)
    for name, fits in [("checkpoint", fits_pytorch(True)), ("remat", fits_remat)]:
        found = largest(fits, max(1, batch // 8))
        print(f", {name} {found} ({found / max(1, eager):.1f} times)", end="", flush=True)
    print(".")


def main():
    options = arguments()
    if options.pytorch:
        return print(json.dumps(pytorch(json.loads(options.pytorch))))
    cases = [case.split(",") for case in options.case] if options.case else CASES
    same = True
    for model, shape, batch in cases:
        for tf32 in (False, True) if options.device != "cpu" else (False,):
            same &= compare(options, model, shape, int(batch), tf32)
        if options.device != "cpu":
            largest_batches(options, model, shape, int(batch))
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
