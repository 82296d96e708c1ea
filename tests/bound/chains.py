"""Compares policies, and the bound of `remat bound`, with the best plan for a chain. Not part of the default
tests.

    cargo build --release --features cli
    python3 tests/bound/chains.py target/release/remat

In a chain of n layers, x[i] is made from x[i-1], and a loss from x[n]. The backward pass then reads each x[i]
again, the last one first. Dynamic programming over segments and memory finds the best plan of a chain, as Rotor
does (Beaumont et al., 2019). If all layers are equal, this is Revolve (Griewank and Walther, 2000). Only
persistent plans count: a plan that keeps a value keeps it until it is read.

Half of the chains have equal layers, and half have random costs of 1 to 9 and sizes of 1 to 4. The excess is
the cost of all recomputation divided by the cost of the chain. A policy fails if it recomputes more than the
cost of the chain.

The script fails if the bound of any budget is above the cost of the best plan.
"""

import functools
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

POLICIES = ["dtr", "dtr-eq", "ancestors", "learned", "learned:portfolio", "learned:search"]
UNIT = 4096
SHARES = [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6]


class Chain:
    def __init__(self, costs, sizes):
        """Takes the cost and the size of each layer; sizes[0] is the size of the input. A gradient is as large as its
        value."""
        self.costs, self.sizes = costs, sizes
        self.layers = len(costs)
        self.first = functools.lru_cache(None)(self.first)
        self.again = functools.lru_cache(None)(self.again)

    def work(self):
        return sum(self.costs) + 1 + self.layers

    def log(self):
        lines = [{"INSTRUCTION": "ANNOTATE", "ANNOTATION": "START"}, {"INSTRUCTION": "CONSTANT", "NAME": "x0"}]

        def size(name, units):
            lines.append({"INSTRUCTION": "MEMORY", "NAME": name, "MEMORY": str(units * UNIT)})

        def call(name, args, result, cost, units):
            lines.append({"INSTRUCTION": "CALL", "NAME": name, "ARGS": args, "RESULT": [result], "TIME": str(cost)})
            size(result, units)
            lines.append({"INSTRUCTION": "ALIAS", "NAME": result, "ALIAS": "-1"})

        size("x0", self.sizes[0])
        for i, cost in enumerate(self.costs, 1):
            call("forward", [f"x{i - 1}"], f"x{i}", cost, self.sizes[i])
        last = self.layers
        call("loss", [f"x{last}"], f"g{last}", 1, self.sizes[last])
        for i in range(last, 0, -1):
            call("backward", [f"g{i}", f"x{i}"], f"g{i - 1}", 1, self.sizes[i - 1])
            lines += [{"INSTRUCTION": "RELEASE", "NAME": name} for name in (f"g{i}", f"x{i}")]
        return "".join(json.dumps(line) + "\n" for line in lines)

    def sweep(self, start, end):
        """Memory and cost of computing x[end] from x[start]. x[start] stays, and the values in between are freed."""
        pairs = ((self.sizes[k - 1] if k > start + 1 else 0) + self.sizes[k] for k in range(start + 1, end + 1))
        return max(pairs), sum(self.costs[start:end])

    def back(self, i):
        return 2 * self.sizes[i] + self.sizes[i - 1]

    def best(self, budget):
        """Least recomputation in a budget of so many units: the least cost minus that of one forward pass."""
        return self.first(0, budget - self.sizes[0]) - sum(self.costs)

    def first(self, start, room):
        """Least cost from x[start] to the loss and back, before any gradient is made. `room` does not include x[start]."""
        return self.choose(start, self.layers, room, 0, self.first)

    def again(self, start, end, room):
        """Least cost from x[start] to x[end] and back, if the gradient of x[end] is in memory. `room` includes this
        gradient."""
        if start == end:
            return 0
        return self.choose(start, end, room, self.sizes[end], lambda at, room: self.again(at, end, room))

    def choose(self, start, end, room, gradient, rest):
        """Least cost over all choices of the first value to keep."""
        least = float("inf")
        for at in range(start + 1, end + 1):
            need, cost = self.sweep(start, at)
            if gradient + need > room or cost >= least:
                break
            if self.back(at) > room:
                continue
            if at < end:
                cost += rest(at, room - self.sizes[at])
            least = min(least, cost + self.again(start, at - 1, room))
        return least


def chains():
    rng = random.Random(2019)
    for layers in (15, 30, 60, 100):
        yield f"{layers} alike", Chain([1] * layers, [1] * (layers + 1))
    for layers in (10, 20, 30, 40):
        costs = [rng.randint(1, 9) for _ in range(layers)]
        yield f"{layers} of all sizes", Chain(costs, [rng.randint(1, 4) for _ in range(layers + 1)])


def replay(remat, path, budgets):
    command = [remat, "sweep", path, "--policy", ",".join(POLICIES), "--arena", "bytes", "--dead", "drop", "-q", "--json", "-"]
    command += ["--budget", ",".join(f"{budget * UNIT}B" for budget in budgets)]
    done = subprocess.run(command, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if not rows:
        sys.exit(done.stderr)
    return {(row["policy"], row["budget_bytes"] // UNIT): row for row in rows}


def main(remat):
    sys.setrecursionlimit(10_000)
    ratios = {name: [] for name in POLICIES}
    fails, optimal, points, bad, tight = dict.fromkeys(POLICIES, 0), dict.fromkeys(POLICIES, 0), 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.log"
        print(f"{'excess':24} {'best':>8} {'bound':>8}", *(f"{name:>17}" for name in POLICIES))
        for name, chain in chains():
            path.write_text(chain.log())
            units = sum(chain.sizes)
            budgets = sorted({round(units * share) for share in SHARES})
            rows = replay(remat, path, budgets)
            for budget in budgets:
                best = chain.best(budget) / chain.work()
                row = rows["dtr", budget]
                if not 0 < best <= 1 or row["least_slowdown"] is None:
                    continue
                points += 1
                bound = row["least_slowdown"] - 1
                bad += bound > best + 1e-6
                tight.append(bound / best)
                told = []
                for policy in POLICIES:
                    slowdown = rows[policy, budget]["slowdown"]
                    told.append("fails" if slowdown is None else f"{slowdown - 1:.4f}")
                    if slowdown is None:
                        fails[policy] += 1
                        continue
                    ratios[policy].append((slowdown - 1) / best)
                    optimal[policy] += slowdown - 1 < best + 1e-5
                where = f"{name}, {budget} of {units}"
                print(f"{where:24} {best:8.4f} {bound:8.4f}", *(f"{text:>17}" for text in told), flush=True)
    print(f"{points} budgets; the bound is {sum(tight) / len(tight):.3f} of the best in the mean")
    for policy in POLICIES:
        each = ratios[policy]
        mean = sum(each) / len(each)
        print(f"{policy:18} the best {optimal[policy]} times, {mean:.3f} of it in the mean, {min(each):.3f} to {max(each):.3f}; fails {fails[policy]} times")
    return 1 if bad or not points else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
