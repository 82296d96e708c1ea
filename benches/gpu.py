#!/usr/bin/env python3
"""Training on a GPU: compares `remat train` with PyTorch eager and torch.utils.checkpoint, in one run.

    cargo build --release --features cuda
    python3 benches/gpu.py | tee benches/gpu-$(hostname).md

There are three parts; --only selects some of them:

  bits     whether parameters are the same at 100 % and at 40 % of the peak
  speed    milliseconds of a step and peak bytes of tensors: with all memory, in the memory that
           checkpointing takes, and at 100, 60, 40 and 25 % of the peak
  largest  the largest batch that trains in --memory, recomputing at most three times the work itself

Both sides have the same networks, optimizer and precision, and medians of steps are compared. Three
differences favour PyTorch. In each step, remat generates images and reads the loss back, as in all
training. PyTorch copies the same batch from pinned memory, and never reads the loss. In one row,
cuDNN also searches for its fastest algorithms. Checkpointing is measured for each block, and for
segments of about the square root of the number of layers. PyTorch counts the tensors of its
allocator, and remat counts those of its arena. Neither counts the memory of the driver. Each
measurement has a separate process, so that no memory of earlier measurements is in use.

The exit code is 1 if parameters depend on a budget, or if a measurement failed. Missed aims are listed at the
end.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

STEPS, WARM_UP = 20, 5
ROOT = Path(__file__).resolve().parent.parent
PARTS = ["bits", "speed", "largest"]

# Network, images as channels x height x width, images per step.
CASES = [("resnet50", "3x224x224", 64), ("resnet1202", "3x32x32", 64)]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remat", default=str(ROOT / "target/release/remat"), help="the program")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try this script")
    parser.add_argument("--only", action="append", choices=PARTS, help="instead of all parts")
    parser.add_argument("--case", action="append", metavar="MODEL,CxHxW,BATCH", help="instead of all")
    parser.add_argument("--precision", action="append", choices=["f32", "tf32"], help="instead of both")
    parser.add_argument("--memory", default="16GiB", help="for the largest batch [%(default)s]")
    parser.add_argument("--steps", type=int, default=STEPS, help="that count, after warming up [%(default)s]")
    parser.add_argument("--limit", type=int, default=90, help="seconds that a row may take [%(default)s]")
    parser.add_argument("--reports", help="append all that is measured to this file, as lines of JSON")
    parser.add_argument("--pytorch", help=argparse.SUPPRESS)  # Job of a separate process.
    options = parser.parse_args()
    options.cases = [case.split(",") for case in options.case] if options.case else CASES
    options.precision = options.precision or (["f32"] if options.device == "cpu" else ["f32", "tf32"])
    return options


# -- PyTorch, in a separate process ------------------------------------------------------------------


def pytorch(job):
    """Runs a job, and returns its measurements as a line of JSON."""
    import torch

    device = torch.device(job["device"])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = job["precision"] == "tf32"
    torch.backends.cudnn.benchmark = job.get("benchmark", False)
    if job.get("memory") and device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, job["memory"] / total))
    if job.get("search"):
        return {"largest": largest(lambda batch: pytorch_fits(job, device, batch), job["batch"])}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    seconds, peak = pytorch_steps(job, device, job["batch"], job["warm_up"], job["steps"])
    return {"ms": 1e3 * seconds, "peak": peak, "device": name, "torch": torch.__version__}


def pytorch_fits(job, device, batch):
    import gc

    import torch

    try:
        pytorch_steps(job, device, batch, 0, 2)
        fits = True
    except torch.cuda.OutOfMemoryError:
        fits = False
    # After the `except` block, the error no longer holds tensors.
    gc.collect()
    torch.cuda.empty_cache()
    return fits


def pytorch_steps(job, device, batch, warm_up, steps):
    """Median seconds of a step, and peak bytes (None on the CPU)."""
    import statistics
    import time

    import torch
    from pytorch_models import build
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    on_gpu = device.type == "cuda"
    torch.manual_seed(1)
    channels, height, width = job["shape"]
    layers = [layer.to(device) for layer in build(job["model"], channels, (height, width), 10)]
    parameters = [p for layer in layers for p in layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)
    images, labels = torch.randn(batch, channels, height, width), torch.randint(10, (batch,))
    if on_gpu:
        images, labels = images.pin_memory(), labels.pin_memory()

    size = {"no": len(layers), "block": 1, "root": math.isqrt(len(layers))}[job["checkpoint"]]
    segments = [torch.nn.Sequential(*layers[i : i + size]) for i in range(0, len(layers), size)]

    def is_recomputed(segment):
        return segment is not segments[-1] and any(True for _ in segment.parameters())

    plan = [(segment, is_recomputed(segment)) for segment in segments]

    def step():
        x, y = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        for segment, recomputed in plan:
            if recomputed:
                x = checkpoint(segment, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = segment(x)
        F.cross_entropy(x, y).backward()
        optimizer.step()

    def mark():
        """Records the current time of the device."""
        if not on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(start, end):
        return start.elapsed_time(end) / 1e3 if on_gpu else end - start

    for _ in range(warm_up):
        step()
    marks = [mark()]
    for _ in range(steps):
        step()
        marks.append(mark())
    if on_gpu:
        torch.cuda.synchronize()
    each = [seconds(start, end) for start, end in zip(marks, marks[1:])]
    return statistics.median(each), torch.cuda.max_memory_allocated(device) if on_gpu else None


# -- processes ------------------------------------------------------------------------------------------


class Failed(Exception):
    """Reason why a measurement failed."""


class DoesNotFit(Failed):
    pass


def output_of(command, seconds):
    """Stdout of a process. Fails if the process fails or exceeds the time limit."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Failed(f"took over {seconds} s") from None
    if done.returncode == 0:
        return done.stdout
    print(f"{' '.join(command)}\n{done.stderr}", file=sys.stderr)
    too_small = done.returncode == 2 and any(word in done.stderr for word in ("out of memory", "too small", "recomput"))
    if too_small or "OutOfMemoryError" in done.stderr:
        raise DoesNotFit("does not fit")
    last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise Failed(f"failed: {last[:100]}")


def report(options, what, result):
    if options.reports:
        with open(options.reports, "a") as file:
            file.write(json.dumps({**what, **result}) + "\n")
    return result


def in_pytorch(options, seconds=None, **job):
    job = {"device": options.device, "warm_up": WARM_UP, "steps": options.steps, "checkpoint": "no", **job}
    output = output_of([options.python, __file__, "--pytorch", json.dumps(job)], seconds or options.limit)
    return report(options, {"of": "pytorch", **job}, json.loads(output))


def in_remat(options, model, shape, batch, precision, budget, steps=None, recompute_limit=20):
    steps = steps or WARM_UP + options.steps
    command = [options.remat, "train", model, "--device", options.device, "--quiet", "--json", "-"]
    command += ["--data", f"synthetic:{shape}", "--batch", str(batch), "--budget", str(budget), "--steps", str(steps)]
    command += ["--recompute-limit", str(recompute_limit), *(["--tf32"] if precision == "tf32" else [])]
    result = json.loads(output_of(command, options.limit))
    if result["peak_bytes"] > result["budget_bytes"]:
        raise Failed(f"used {result['peak_bytes']} bytes of a budget of {result['budget_bytes']}")
    result |= {"ms": 1e3 * result["seconds_per_step_median"], "peak": result["peak_bytes"]}
    return report(options, {"of": "remat", "shape": shape, "precision": precision, "budget": str(budget)}, result)


def largest(fits, start):
    """The largest batch that fits, to about 10 %. Assumes that all batches below a fitting batch fit."""
    low, high = 0, max(1, start)
    while fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 10):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# -- the parts ------------------------------------------------------------------------------------------


class Findings:
    """Findings that are printed at the end."""

    def __init__(self):
        self.lines = []
        self.all_well = True

    def aim(self, text, met):
        self.lines.append(f"- {text}: {'met' if met else '**missed**'}")

    def must(self, text, holds):
        self.lines.append(f"- {text}: {'yes' if holds else '**NO**'}")
        self.all_well &= holds

    def unmeasured(self, text, reason):
        self.lines.append(f"- {text}: **not measured**, {reason}")
        self.all_well = False


def bits(options, findings, model, shape, batch):
    print(f"\n### Parameters of {model}, {shape}, batch {batch}, after 4 steps\n")
    print("| precision | budget | peak MiB | recomputed ops | loss | parameters |\n|---|---|---|---|---|---|")
    for precision in options.precision:
        what = f"{model}, {precision}: the same parameters at 100 % and 40 %"
        try:
            results = [in_remat(options, model, shape, batch, precision, b, steps=4) for b in ("100%", "40%")]
        except Failed as reason:
            findings.unmeasured(what, reason)
            continue
        for budget, r in zip(("100 %", "40 %"), results):
            peak, digest = r["peak"] / 2**20, r["params_sha256"][:12]
            print(f"| {precision} | {budget} | {peak:.0f} | {r['recomputed_ops']} | {r['final_loss']} | {digest} |")
        whole, tight = results
        findings.must(what, whole["params_sha256"] == tight["params_sha256"])
        sane = tight["recomputed_ops"] > 0 and all(isinstance(r["final_loss"], float) for r in results)
        findings.must(f"{model}, {precision}: 40 % recomputes, and losses are numbers", sane)


class Table:
    """Rows of one network and precision. The first row is the baseline of the other rows."""

    def __init__(self, findings, title):
        self.findings, self.title, self.eager, self.digests = findings, title, None, []
        print(f"\n### {title}\n")
        print("| | ms a step | to eager | peak MiB | recomputed | moves | parameters |\n|---|---|---|---|---|---|---|")

    def row(self, name, measure):
        """Returns the result. After a failure, prints the reason in a row, and returns None."""
        try:
            result = measure()
        except Failed as reason:
            print(f"| {name} | {reason} | | | | | |", flush=True)
            if not isinstance(reason, DoesNotFit):
                self.findings.unmeasured(f"{self.title}: {name}", reason)
            return None
        cells = [f"{result['ms']:.1f}", "", "", "", "", ""]
        if self.eager:
            cells[1] = f"{result['ms'] / self.eager['ms']:.3f}"
        if result["peak"] is not None:
            cells[2] = f"{result['peak'] / 2**20:.0f}"
        if "params_sha256" in result:
            self.digests.append(result["params_sha256"])
            ratio = result["recompute_ratio"]
            cells[3:] = [f"{ratio:.2f}", str(result["compactions"]), result["params_sha256"][:12]]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        return result


def speed(options, findings, model, shape, batch, precision):
    table = Table(findings, f"{model}, {shape}, batch {batch}, {precision}")
    baselines, at = {}, {}
    if options.has_pytorch:
        sizes = [int(n) for n in shape.split("x")]
        for name, job in [
            ("PyTorch eager (baseline)", {}),
            ("PyTorch eager, cudnn.benchmark", {"benchmark": True}),
            ("checkpoint, each block", {"checkpoint": "block"}),
            ("checkpoint, in segments", {"checkpoint": "root"}),
        ]:
            job = {"model": model, "shape": sizes, "batch": batch, "precision": precision, **job}
            baselines[name] = table.row(name, lambda: in_pytorch(options, **job))
            # Only the first row: no other row may become the baseline.
            table.eager = baselines["PyTorch eager (baseline)"]
    budgets = [("all memory", "auto"), ("100 % of its peak", "100%")]
    budgets += [
        (f"in the memory of {name}", result["peak"])
        for name, result in baselines.items()
        if name.startswith("checkpoint") and result and result["peak"]
    ]
    budgets += [(f"{percent} % of its peak", f"{percent}%") for percent in (60, 40, 25)]
    for name, budget in budgets:
        at[name] = table.row(f"remat, {name}", lambda: in_remat(options, model, shape, batch, precision, budget))
    what = f"{table.title}: the same parameters in all of {len(table.digests)} rows"
    if len(table.digests) > 1:
        findings.must(what, len(set(table.digests)) == 1)
    else:
        findings.unmeasured(what, "that takes two")
    free = at["all memory"]
    what = f"{table.title}: a step with all memory"
    if table.eager and free:
        ratio = free["ms"] / table.eager["ms"]
        findings.aim(f"{what} takes {ratio:.3f} of eager's, aim at most 1.03", ratio <= 1.03)
    else:
        findings.unmeasured(f"{what}, against eager's", "one of them has no time")
    for name, result in baselines.items():
        tight = at.get(f"in the memory of {name}")
        if tight:
            ratio = tight["ms"] / result["ms"]
            findings.aim(f"{table.title}: in the memory of {name}, {ratio:.3f} of its time, aim below 1", ratio < 1)
        elif result and result["peak"] and name.startswith("checkpoint"):
            findings.aim(f"{table.title}: in the memory of {name}, it does not fit; aim below 1", False)


def largest_batches(options, findings, model, shape, batch):
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    memory = int(float(options.memory[:-3]) * units[options.memory[-3:]])
    sizes = [int(n) for n in shape.split("x")]
    print(f"\n### Largest batch of {model}, {shape}, in {options.memory}, tf32\n\n| | images | to eager |\n|---|---|---|")

    def show(name, found, eager):
        print(f"| {name} | {found} | {found / max(1, eager):.1f} |", flush=True)

    def of_pytorch(checkpoint):
        job = {"model": model, "shape": sizes, "precision": "tf32", "memory": memory, "checkpoint": checkpoint}
        return in_pytorch(options, seconds=4 * options.limit, batch=batch, search=True, **job)["largest"]

    def fits(n):
        try:
            in_remat(options, model, shape, n, "tf32", memory, steps=2, recompute_limit=3)
            return True
        except DoesNotFit:
            return False

    what = f"{model}: the largest batch"
    try:
        eager = of_pytorch("no")
        show("PyTorch eager (baseline)", eager, eager)
        show("checkpoint, each block", of_pytorch("block"), eager)
        show("checkpoint, in segments", of_pytorch("root"), eager)
        found = largest(fits, 4 * eager)
        show("remat", found, eager)
        findings.aim(f"{what} is {found / max(1, eager):.1f} times eager's, aim 4", found >= 4 * eager)
    except Failed as reason:
        findings.unmeasured(what, reason)


def main():
    options = arguments()
    if options.pytorch:
        return print(json.dumps(pytorch(json.loads(options.pytorch))))
    print(f"    {' '.join(sys.argv)}")
    versions = "import torch; print('PyTorch', torch.__version__, 'cuDNN', torch.backends.cudnn.version())"
    found = subprocess.run([options.python, "-c", versions], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    options.has_pytorch = found.returncode == 0
    print(f"\n{found.stdout.strip() if options.has_pytorch else 'There is no PyTorch: only remat is measured.'}\n")
    print("```\n" + output_of([options.remat, "devices"], options.limit).strip() + "\n```", flush=True)
    findings = Findings()
    parts = options.only or PARTS
    for model, shape, batch in options.cases:
        if "bits" in parts:
            bits(options, findings, model, shape, int(batch) // 2)
    for model, shape, batch in options.cases:
        for precision in options.precision if "speed" in parts else []:
            speed(options, findings, model, shape, int(batch), precision)
    for model, shape, batch in options.cases:
        if "largest" not in parts:
            continue
        if options.has_pytorch:
            largest_batches(options, findings, model, shape, int(batch))
        else:
            findings.unmeasured(f"{model}: the largest batch, against eager's", "there is no PyTorch")
    print("\n### In short\n")
    print("\n".join(findings.lines))
    if not findings.all_well:
        sys.exit(1)


if __name__ == "__main__":
    main()
