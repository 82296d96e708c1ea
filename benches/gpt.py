#!/usr/bin/env python3
"""Training of a GPT: compares `remat train gpt` with the same network in PyTorch, and with a byte model of order 3.

    cargo build --release
    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch==2.9.0 numpy==2.2.6 safetensors==0.6.2
    python3 benches/gpt.py --python /tmp/torch/bin/python

PyTorch begins with the parameters of remat, gets the same batches in the same order, and updates with AdamW at the same
learning rates. The script checks that the losses of the first steps are equal except for rounding. Later losses diverge,
as those of two PyTorch runs with different numbers of threads do. Bits per byte are measured on the
last tenth of the text, which is not part of the training.

The model of order 3 predicts a byte from counts of the bytes that follow the same three bytes in the training part. It
estimates the probability of unseen bytes by Witten and Bell (IEEE Transactions on Information
Theory 37, 1991). For a byte that never followed the three bytes, the model uses the counts after
two bytes, then after one byte, then of all bytes, and finally 1/256.
"""

import argparse
import gzip
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"layers": 4, "width": 128, "heads": 4, "context": 128}
BATCH = 16
# Number of first losses that must agree, and the tolerance.
FIRST, NEAR = 5, 1e-3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remat", default=str(ROOT / "target/release/remat"), help="the program")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2600)
    parser.add_argument("--seeds", default="0", help="such as 0,1,2")
    parser.add_argument("--budget", default="40%", help="of remat")
    parser.add_argument("--pytorch", help=argparse.SUPPRESS)  # Job of a separate process.
    return parser.parse_args()


def text():
    """Training bytes and test bytes, split as in `data/text.rs`."""
    with gzip.open(ROOT / "src/data/moby_dick.txt.gz") as file:
        all_bytes = file.read()
    train = len(all_bytes) // 10 * 9 + len(all_bytes) % 10 * 9 // 10
    return all_bytes[:train], all_bytes[train:]


# -- The same batches: `rng.rs`, `data/batches.rs`, `data/text.rs` -------------------------------------------------------


class SplitMix64:
    MASK = 2**64 - 1

    def __init__(self, seed):
        self.state = seed & self.MASK

    @classmethod
    def of(cls, seed, draw):
        return cls(seed ^ cls(~draw).next())

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & self.MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & self.MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & self.MASK
        return z ^ (z >> 31)

    def below(self, n):
        return (self.next() * n) >> 64


def batches(train, context, seed):
    """Start positions of the windows of each batch."""
    windows, last = (len(train) - 1) // context, len(train) - 1 - context
    order, numbers, step = list(range(windows)), SplitMix64(seed), 0
    while True:
        for i in range(windows - 1, 0, -1):
            j = numbers.below(i + 1)
            order[i], order[j] = order[j], order[i]
        for used in range(0, windows - BATCH + 1, BATCH):
            shift = SplitMix64.of(seed, step)
            yield [min(i * context + shift.below(context), last) for i in order[used : used + BATCH]]
            step += 1


# -- PyTorch, in a separate process ------------------------------------------------------------------------------------


def pytorch(job):
    import torch
    import pytorch_models as models
    from safetensors.torch import load_file
    from torch.nn import functional as F

    torch.set_num_threads(job["threads"])
    train, test = (torch.frombuffer(bytearray(part), dtype=torch.uint8).long() for part in text())
    context = SIZES["context"]
    parts = models.gpt(256, context, SIZES["layers"], SIZES["width"], SIZES["heads"])
    given = load_file(job["parameters"])
    embed, *blocks, head = parts

    def fill(parameter, name, turned=False):
        value = given[name].t() if turned else given[name]
        # The step that wrote the file changed each parameter by up to 1e-30.
        parameter.data.copy_(torch.where(value.abs() < 1e-20, 0.0, value))

    fill(embed.tokens.weight, "wte.weight")
    fill(embed.positions.weight, "wpe.weight")
    fill(head.norm.weight, "ln_f.weight")
    fill(head.norm.bias, "ln_f.bias")
    for i, block in enumerate(blocks):
        for layer, name in [(block.norm1, "ln_1"), (block.norm2, "ln_2"), (block.qkv, "attn.c_attn"),
                            (block.out, "attn.c_proj"), (block.wide, "mlp.c_fc"), (block.narrow, "mlp.c_proj")]:
            # Weights of GPT-2 are transposed.
            fill(layer.weight, f"h.{i}.{name}.weight", turned=not name.startswith("ln"))
            fill(layer.bias, f"h.{i}.{name}.bias")
    parameters = list({id(p): p for part in parts for p in part.parameters()}.values())
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.01},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8)

    def loss_of(starts, part, reduction="mean"):
        x = torch.stack([part[start : start + context] for start in starts])
        labels = torch.stack([part[start + 1 : start + context + 1] for start in starts])
        for module in parts:
            x = module(x)
        return F.cross_entropy(x.flatten(0, -2), labels.flatten(), reduction=reduction)

    losses, began = [], time.perf_counter()
    for starts, rate in zip(batches(text()[0], context, job["seed"]), job["rates"]):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = loss_of(starts, train)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - began
    with torch.no_grad():
        starts = [i * context for i in range((len(test) - 1) // context)]
        total = sum(loss_of(starts[i : i + BATCH], test, "sum").item() for i in range(0, len(starts), BATCH))
    bits = total / (len(starts) * context) / math.log(2)
    print(json.dumps({"bits": bits, "seconds": seconds, "losses": losses[:FIRST]}))


# -- Both sides, and counting --------------------------------------------------------------------------------------------


def order_three(order=3):
    """Bits per byte on the test part."""
    train, test = text()
    counts = [defaultdict(Counter) for _ in range(order + 1)]
    for n, of in enumerate(counts):
        for i in range(n, len(train)):
            of[train[i - n : i]][train[i]] += 1
    totals = [{before: (sum(after.values()), len(after)) for before, after in of.items()} for of in counts]
    bits = 0.0
    for i in range(order, len(test)):
        p = 1 / 256
        for n, of in enumerate(counts):
            before = test[i - n : i]
            if before not in of:
                break
            total, kinds = totals[n][before]
            p = (of[before][test[i]] + kinds * p) / (total + kinds)
        bits -= math.log2(p)
    return bits / (len(test) - order)


def run_remat(options, seed, folder):
    sizes = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
    base = [options.remat, "train", "gpt", *sizes, "--batch", str(BATCH), "--seed", str(seed), "--quiet"]
    # A step with a negligible learning rate, which saves the initial parameters.
    first = Path(folder) / "first.safetensors"
    subprocess.run([*base, "--steps", "1", "--lr", "1e-30", "--weight-decay", "0", "--no-test", "--save", first], check=True)
    log = Path(folder) / "log.jsonl"
    command = [*base, "--steps", str(options.steps), "--threads", str(options.threads), "--budget", options.budget,
               "--log", log, "--json", "-"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rows = [row for row in map(json.loads, log.read_text().splitlines()) if row.get("loss") is not None]
    return {"bits": report["test_loss"] / math.log(2), "seconds": report["train_seconds"], "first": str(first),
            "losses": [row["loss"] for row in rows], "rates": [row["lr"] for row in rows]}


def main():
    options = arguments()
    if options.pytorch:
        return pytorch(json.loads(Path(options.pytorch).read_text()))
    counted = order_three()
    print(f"{options.steps} steps, {options.threads} threads, remat in {options.budget}; order 3: {counted:.4f} bits a byte\n")
    print("| seed | remat | PyTorch | ratio | to order 3 | remat's time | PyTorch's | first losses differ by |")
    print("|---|---|---|---|---|---|---|---|")
    failed = False
    for seed in map(int, options.seeds.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            ours = run_remat(options, seed, folder)
            job = {"threads": options.threads, "seed": seed, "parameters": ours["first"], "rates": ours["rates"]}
            file = Path(folder) / "job.json"
            file.write_text(json.dumps(job))
            command = [options.python, __file__, "--pytorch", file]
            theirs = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        apart = max(abs(a - b) for a, b in zip(ours["losses"], theirs["losses"]))
        ratio = ours["bits"] / theirs["bits"]
        failed = failed or apart > NEAR or ratio > 1.02 or ours["bits"] >= counted
        print(f"| {seed} | {ours['bits']:.4f} | {theirs['bits']:.4f} | {ratio:.4f} | {ours['bits'] / counted:.3f} "
              f"| {ours['seconds']:.0f} s | {theirs['seconds']:.0f} s | {apart:.1e} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
