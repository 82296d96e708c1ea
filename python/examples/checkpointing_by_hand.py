"""Compares remat with `torch.utils.checkpoint` on every block of a model, at the same peak.

    python checkpointing_by_hand.py
    python checkpointing_by_hand.py gpt cnn --steps 21 --policy learned

For each model, the budget of remat is the peak of the bytes in tensors with checkpointing by hand. Then plain
PyTorch, PyTorch with checkpoints, and remat make their steps in turn, on one thread. The time of a step is CPU
time of its thread, as a multiple of the plain step beside it; the table shows medians. All three must have the
same losses.
"""

import argparse
import concurrent.futures
import statistics
import time

import torch
import torch.nn.functional as F
from gpt import GPT
from modern_steps import ViT
from torch import nn
from torch.utils.checkpoint import checkpoint

import remat


class ByHand(nn.Module):
    """A block of which only the input is kept for the backward pass."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        # With checkpoints, running statistics would count each batch twice.
        self.norm1, self.norm2 = (nn.BatchNorm2d(width, track_running_stats=False) for _ in range(2))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += x
        return F.relu(y, inplace=True)


class CNN(nn.Module):
    def __init__(self, width=32, blocks=6):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Residual(width) for _ in range(blocks)))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class MLP(nn.Module):
    def __init__(self, width=256, blocks=12):
        super().__init__()
        layers = (nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.1)) for _ in range(blocks))
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.blocks(x))


class Encoder(nn.Module):
    def __init__(self, width=128, blocks=4, vocabulary=512):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layers = (nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, batch_first=True) for _ in range(blocks))
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def next_token(model, vocabulary=256):
    tokens = torch.randint(0, vocabulary, (16, 129))
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def classes(model, *shape):
    return F.cross_entropy(model(torch.randn(shape)), torch.randint(0, 10, shape[:1]))


# Name: the model, and the loss of a step on random data.
MODELS = {
    "gpt": (lambda: GPT(width=128, layers=6, heads=4, context=128, dropout=0.1), next_token),
    "cnn": (CNN, lambda model: classes(model, 32, 3, 32, 32)),
    "vit": (lambda: ViT(scale=1), lambda model: classes(model, 16, 3, 64, 64)),
    "mlp": (MLP, lambda model: classes(model, 1024, 256)),
    "encoder": (Encoder, next_token),
}


class Run:
    """A model in training."""

    def __init__(self, name, by_hand=False):
        torch.manual_seed(0)
        make, self.loss_of = MODELS[name]
        self.model = make()
        if by_hand:
            self.model.blocks = nn.Sequential(*map(ByHand, self.model.blocks))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.times, self.losses = [], []

    def step(self):
        torch.manual_seed(len(self.losses))
        start = time.thread_time()
        self.optimizer.zero_grad()
        loss = self.loss_of(self.model)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.times.append(time.thread_time() - start)


def peak(name, by_hand, record=None):
    """Peak of bytes in tensors, of steps in which nothing is evicted for lack of memory."""
    with remat.budget("64GiB", policy="none", record=record, device="cpu") as b:
        run = Run(name, by_hand)
        for _ in range(3):
            run.step()
    return b.stats().live_peak_bytes


def compare(name, args):
    record = args.record and args.record.format(name=name)
    full, hand = peak(name, False, record), peak(name, True)
    # A thread that began before a budget does not know of the budget.
    with concurrent.futures.ThreadPoolExecutor(1) as outside:
        plain, checked = outside.submit(Run, name).result(), outside.submit(Run, name, True).result()
        with remat.budget(args.budget or hand, policy=args.policy, device="cpu") as b:
            ours = Run(name)
            for i in range(args.warm + args.steps):
                if i == args.warm:
                    before = b.stats()
                outside.submit(plain.step).result()
                outside.submit(checked.step).result()
                ours.step()
            after = b.stats()
    same = plain.losses == checked.losses == ours.losses
    base = statistics.median(plain.times[args.warm :])
    slower = [
        statistics.median(mine / its for mine, its in zip(run.times[args.warm :], plain.times[args.warm :]))
        for run in (checked, ours)
    ]
    again = (after.recompute_cost - before.recompute_cost) / (after.base_cost - before.base_cost)
    print(
        f"| {name} | {full / 2**20:.1f} MiB | {hand / 2**20:.1f} MiB | {1e3 * base:.0f} ms | x{slower[0]:.2f} | "
        f"x{slower[1]:.2f} | {100 * again:.1f} % | {after.live_peak_bytes / 2**20:.1f} MiB | "
        f"{'yes' if same else 'NO'} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--budget", help="default: the peak of checkpointing by hand")
    parser.add_argument("--steps", type=int, default=11, help="steps that are measured")
    parser.add_argument("--record", metavar="FILE", help="recordings of plain steps: a name with {name}")
    parser.add_argument("--warm", type=int, default=8, help="steps before them")
    parser.add_argument("--policy", default="learned:portfolio")
    args = parser.parse_args()
    if unknown := set(args.names) - set(MODELS):
        parser.error(f"{', '.join(unknown)}: no model here; choose of {', '.join(MODELS)}")
    torch.set_num_threads(1)
    titles = "model | peak, plain | peak by hand | plain step | by hand | remat | recomputed | peak of remat"
    print(f"| {titles} | same losses |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|")
    for name in args.names or MODELS:
        compare(name, args)


if __name__ == "__main__":
    main()
