"""Compares what `remat.suggest` says about models with runs in these budgets.

    python budgets.py
    python budgets.py gpt lstm --shares 50 25

For each model, `suggest` gives the bytes of a step without a limit, and the recomputation in smaller budgets. Then the
model trains without a budget, with so large a budget that nothing is evicted, and in the smaller budgets. The table
shows the peak of each run, the work that it recomputed once its steps are known, and whether all parameters, buffers
and losses have the bits of the run without a budget.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from checkpointing_by_hand import MODELS as BLOCKS
from checkpointing_by_hand import classes, next_token
from modern_steps import UNet, noise
from resnet import ResNet
from torch import nn

import remat


class LSTM(nn.Module):
    def __init__(self, width=128, vocabulary=64):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.rnn = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


# Name: the model, and the loss of a step on random data.
MODELS = {
    **BLOCKS,
    "lstm": (LSTM, lambda model: next_token(model, 64)),
    "unet": (lambda: UNet(scale=1), lambda model: noise(model, 8, 32)),
    "resnet50": (lambda: ResNet(50, 10), lambda model: classes(model, 8, 3, 96, 96)),
}


class Training:
    def __init__(self, name):
        torch.manual_seed(0)
        make, self.loss_of = MODELS[name]
        self.model = make()
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.losses = []

    def step(self):
        torch.manual_seed(len(self.losses))
        self.optimizer.zero_grad()
        loss = self.loss_of(self.model)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def bits(self):
        return [*self.model.state_dict().values(), torch.tensor(self.losses, dtype=torch.float64)]


def train(name, args):
    training = Training(name)
    for _ in range(args.steps):
        training.step()
    return training.bits()


def within(name, budget, args):
    """Trains within a budget. Returns the bits, the counters, and the share recomputed in the last third of the steps."""
    training = Training(name)
    with remat.budget(budget, policy=args.policy, device="cpu") as b:
        for i in range(args.steps):
            if i == 2 * args.steps // 3:
                before = b.stats()
            training.step()
        after = b.stats()
    again = (after.recompute_cost - before.recompute_cost) / (after.base_cost - before.base_cost)
    return training.bits(), after, again


def compare(name, args):
    start = time.monotonic()
    training = Training(name)
    full = remat.suggest(training.step, device="cpu").peak_bytes
    sizes = [full * share // 100 for share in args.shares]
    said = remat.suggest(training.step, sizes, policy=args.policy, device="cpu")
    seconds = time.monotonic() - start
    slowdowns = {row.budget_bytes: row.slowdown for row in said.rows}
    plain = train(name, args)
    _, stats, _ = within(name, "1TiB", args)
    cells = [name, f"{full / 2**20:.1f}", f"{stats.peak_bytes / 2**20:.1f}", f"{seconds:.0f} s"]
    for size in sizes:
        foretold = slowdowns[size]
        foretold = "-" if foretold is None else f"{100 * (foretold - 1):.1f}"
        try:
            bits, stats, again = within(name, size, args)
        except remat.OutOfMemory as error:
            cells.append(f"{foretold} / out of memory")
            if args.verbose:
                print(error)
            continue
        same = all(torch.equal(mine, its) for mine, its in zip(bits, plain, strict=True))
        assert stats.peak_bytes <= size, (stats.peak_bytes, size)
        cells.append(f"{foretold} / {100 * again:.1f}{'' if same else ', OTHER BITS'}")
    print("|", " | ".join(cells), "|", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--shares", nargs="+", type=int, default=[60, 40, 30], metavar="PERCENT")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--policy", default="learned:portfolio")
    parser.add_argument("--verbose", action="store_true", help="show errors")
    args = parser.parse_args()
    if unknown := set(args.names) - set(MODELS):
        parser.error(f"{', '.join(unknown)}: no model here; choose of {', '.join(MODELS)}")
    titles = ["model", "MiB, suggested", "MiB, run", "time of suggest"]
    print("|", " | ".join(titles + [f"% recomputed at {share} %: suggested / run" for share in args.shares]), "|")
    print("|---" + "|--:" * (3 + len(args.shares)) + "|")
    for name in args.names or MODELS:
        compare(name, args)


if __name__ == "__main__":
    main()
