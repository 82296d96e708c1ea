#!/usr/bin/env python3
"""Training on the CPU: compares `remat train` with PyTorch eager and torch.utils.checkpoint, in one run.

    cargo build --release
    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch==2.9.0 numpy==2.2.6
    python3 benches/cpu.py --python /tmp/torch/bin/python

The times are median milliseconds of a step on --threads threads. --quantile sets another quantile, such as a lower
one if other programs share the cores. Each side runs in a separate process, alternating in --rounds rounds, of which
the fastest counts. Networks, batches and optimizers are the same. PyTorch's peak is the peak of all tensors of its
allocator, as its profiler reports them. The peak of remat is the peak of its arena, workspaces included. In the last
columns, the budget of remat is the memory that checkpointing of each block took.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS, WARM_UP = 20, 5

# Name -> arguments of `remat train`, and the same settings for PyTorch.
CASES = {
    "resnet20, 64 of 3x32x32": (
        ["resnet20", "--data", "synthetic:3x32x32", "--batch", "64"],
        {"model": "resnet20", "image": [3, 32, 32], "batch": 64},
    ),
    "resnet20, 64 of 1x8x8": (
        ["resnet20", "--data", "digits", "--batch", "64"],
        {"model": "resnet20", "image": [1, 8, 8], "batch": 64},
    ),
    "gpt, 4 layers of 128, 16 of 128 bytes": (
        ["gpt", "--layers", "4", "--width", "128", "--heads", "4", "--context", "128", "--batch", "16"],
        {"model": "gpt", "layers": 4, "width": 128, "heads": 4, "context": 128, "batch": 16},
    ),
    "lstm, 2 layers of 256, 16 of 128 bytes": (
        ["lstm", "--layers", "2", "--width", "256", "--context", "128", "--batch", "16"],
        {"model": "lstm", "layers": 2, "width": 256, "context": 128, "batch": 16},
    ),
    "unet, 4 of 3x32x32": (
        ["unet", "--data", "synthetic:3x32x32", "--batch", "4"],
        {"model": "unet", "image": [3, 32, 32], "batch": 4, "unet_width": 32, "unet_depth": 4},
    ),
    "densenet121, 4 of 3x32x32": (
        ["densenet121", "--data", "synthetic:3x32x32", "--batch", "4"],
        {"model": "densenet121", "image": [3, 32, 32], "batch": 4},
    ),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remat", default=str(ROOT / "target/release/remat"), help="the program")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quantile", type=float, default=0.5, help="of the steps' times, from 0 to 1")
    parser.add_argument("--only", action="append", metavar="MODEL", help="instead of all")
    parser.add_argument("--pytorch", help=argparse.SUPPRESS)  # Job of a separate process.
    return parser.parse_args()


# -- PyTorch, in a separate process ------------------------------------------------------------------


def quantile(times, share):
    """Quantile of the times of the steps after the warm-up."""
    times = sorted(times[WARM_UP:])
    return times[round(share * (len(times) - 1))]


def pytorch(job):
    import time

    import torch
    import pytorch_models as models
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    name, batch = job["model"], job["batch"]

    def start():
        """Returns a function that runs a step."""
        run = (lambda part, *x: checkpoint(part, *x, use_reentrant=False)) if job["checkpoint"] else (lambda part, *x: part(*x))
        if name in ("gpt", "lstm"):
            x, labels = (torch.randint(256, (batch, job["context"])) for _ in range(2))
        else:
            x, labels = torch.randn(batch, *job["image"]), torch.randint(10, (batch,))
        if name == "gpt":
            parts = models.gpt(256, job["context"], job["layers"], job["width"], job["heads"])
        elif name == "lstm":
            parts = [models.Lstm(256, job["width"], job["layers"])]
        elif name == "unet":
            channels = job["image"][0]
            parts = [models.UNet(channels, channels, job["unet_width"], job["unet_depth"])]
        elif name == "densenet121":
            parts = models.densenet121(job["image"][0], job["image"][1:], 10)
        else:
            parts = models.build(name, job["image"][0], job["image"][1:], 10)
        parameters = list({id(p): p for part in parts for p in part.parameters()}.values())
        if name in ("gpt", "lstm"):
            optimizer = torch.optim.AdamW(parameters, lr=1e-3)
        else:
            optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)

        def forward():
            if name == "unet":
                return F.mse_loss(parts[0](x, run), x)
            y = x
            for part in parts:
                y = run(part, y)
            return F.cross_entropy(y.flatten(0, -2), labels.flatten())

        def step():
            loss = forward()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    step = start()
    times = []
    for _ in range(WARM_UP + STEPS):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    seconds = quantile(times, job["quantile"])
    del step
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step = start()
        step()
        step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    used = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        used += event.nbytes()
        peak = max(peak, used)
    print(json.dumps({"seconds": seconds, "peak": peak}))


# -- Both sides ----------------------------------------------------------------------------------------


def run_pytorch(options, job, checkpoint):
    job = job | {"checkpoint": checkpoint, "threads": options.threads, "quantile": options.quantile}
    command = [options.python, __file__, "--pytorch", json.dumps(job)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_remat(options, args, budget):
    command = [options.remat, "train", *args, "--budget", budget, "--steps", str(WARM_UP + STEPS), "--no-test", "--quiet",
               "--threads", str(options.threads), "--json", "-"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        done = subprocess.run([*command, "--log", log], capture_output=True, text=True)
        if done.returncode != 0:
            return None, done.stderr.strip().splitlines()[0]
        times = [json.loads(line)["seconds"] for line in log.read_text().splitlines()]
    return {"seconds": quantile(times, options.quantile), "peak": json.loads(done.stdout)["peak_bytes"]}, None


def main():
    options = arguments()
    if options.pytorch:
        return pytorch(json.loads(options.pytorch))
    print("| network | eager | remat | ratio | eager's peak | remat's peak | checkpoint | at its peak | remat in that | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, (args, job) in CASES.items():
        if options.only and job["model"] not in options.only:
            continue
        best = {}
        for _ in range(options.rounds):
            row = {"eager": run_pytorch(options, job, False), "remat": run_remat(options, args, "100%")[0]}
            row["checkpoint"] = run_pytorch(options, job, True)
            row["within"] = run_remat(options, args, str(row["checkpoint"]["peak"]))[0]
            for key, found in row.items():
                if found and (key not in best or found["seconds"] < best[key]["seconds"]):
                    best[key] = found
        ms = lambda key: f"{1e3 * best[key]['seconds']:.1f} ms" if key in best else "does not run"
        mib = lambda key: f"{best[key]['peak'] / 2**20:.1f} MiB" if key in best else ""
        ratio = lambda a, b: f"{best[a]['seconds'] / best[b]['seconds']:.2f}" if a in best and b in best else ""
        print(f"| {name} | {ms('eager')} | {ms('remat')} | {ratio('remat', 'eager')} | {mib('eager')} | {mib('remat')} "
              f"| {ms('checkpoint')} | {mib('checkpoint')} | {ms('within')} | {ratio('within', 'checkpoint')} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
