"""Compares the bound of `remat bound` with the best plan that CP-SAT finds. Not part of the default tests.

    python3 -m venv /tmp/solvers && /tmp/solvers/bin/pip install ortools==9.15.6755
    cargo build --features cli
    cargo test --features cli --test tests bound::programs_for_cp_sat -- --ignored
    target/debug/remat train mlp --batch 8 --steps 2 --no-test --record target/tmp/bound/mlp.jsonl
    /tmp/solvers/bin/python tests/bound/intervals.py target/debug/remat target/tmp/bound/*.jsonl

The plans are those of Moccasin (Bartan et al., ICML 2023). Each value has some intervals in which it is in
memory. An interval begins with a run of the op that makes the value, and an op reads each value in one of the
value's intervals. At each instant, the bytes of all intervals fit the budget. The script reads a recording
under the assumptions of the theorem in `src/bound.rs`, and shares no code with it.

Two numbers are limited: how often an op runs again (--runs), and how often it runs between two successive
commands, in program order (--rounds). The plan found therefore costs at least as much as the best of all plans.
If a file NAME.least exists beside NAME.jsonl, each of its lines has a budget and the cost of the best plan that
the search of `exact.rs` found, or `none`. The script compares the two costs.

The script fails in three cases: if the bound is above the cost of a plan, if a plan costs less than NAME.least
says, or if `remat bound` refuses the wrong budgets. It must refuse exactly the budgets below the largest
working set, which the script computes itself.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from ortools.sat.python import cp_model

# Costs are rounded to the cost of all ops divided by this number.
STEPS = 10**7


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("remat", help="the program")
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0, help="most time for a budget")
    parser.add_argument("--at", default="0.5,0.8", help="budgets, as shares of the way from the least to the peak")
    parser.add_argument("--runs", type=int, default=4, help="most runs of an op after the first")
    parser.add_argument("--rounds", type=int, default=1, help="most runs of an op between two commands")
    parser.add_argument("--workers", type=int, default=4, help="of CP-SAT")
    return parser.parse_args()


class Value:
    """Bytes of a storage with one content, which one or more tensors view."""

    def __init__(self, size, path):
        self.size = size
        # Op that can make the value again.
        self.path = path
        self.handles = 1
        # Command that first makes the value, if this command is fixed.
        self.made = None
        # The value must stay in memory from the end of one command to the end of another, or of the program if
        # that is None.
        self.held_from, self.held_to = None, None
        # Whether the value must stay in memory after the first command that reads it.
        self.leaf = False
        # If an update makes the value: the number of the call in the command, and the value whose bytes it may
        # take over.
        self.update = None


class Op:
    """An op that may run again."""

    def __init__(self, cost, reads, scratch, first):
        self.cost, self.reads, self.scratch = cost, reads, scratch
        self.makes = []
        # Command that is the first run of the op, or the earliest command before which the op may run.
        self.first = first
        self.free = not reads


class Step:
    """A command that needs memory."""

    def __init__(self):
        self.reads, self.makes, self.scratches = set(), set(), [0]


class Program:
    """Program of a recording: its values, ops, and the needs of its commands."""

    def __init__(self, lines):
        self.values, self.paths, self.steps = [], [], []
        self.tensors, self.ops = {}, 0
        for line in lines:
            line = json.loads(line)
            if line["event"] == "did" and isinstance(line["command"], dict):
                ((kind, what),) = line["command"].items()
                getattr(self, f"on_{kind}", lambda _: None)(what)

    def new(self, tensor, layout, path=None):
        value = Value(bytes_of(layout), path)
        self.values.append(value)
        self.tensors[tensor] = (value, layout)
        return value

    def of(self, tensor):
        return self.tensors[tensor][0]

    def step(self, reads=(), makes=(), scratches=(0,)):
        step = Step()
        step.reads, step.makes, step.scratches = set(reads), set(makes), list(scratches)
        self.steps.append(step)
        return len(self.steps) - 1

    def hold(self, value, at):
        if value.held_from is None or at < value.held_from:
            value.held_from = at

    def end(self, tensor, at):
        value = self.of(tensor)
        value.handles -= 1
        if value.handles == 0:
            value.held_to = at

    def on_put(self, what):
        host = what["host"]
        if host.get("cost") is None:
            value = self.new(what["tensor"], host["layout"])
            value.made = self.step(makes=[value])
            self.hold(value, value.made)
            return
        path = Op(host["cost"], [], 0, len(self.steps))
        value = self.new(what["tensor"], host["layout"], path)
        value.leaf = what.get("leaf", False)
        path.makes.append(value)
        self.paths.append(path)

    def on_apply(self, call):
        outputs = call["outputs"]
        if "updates" in outputs:
            return self.on_update_all([call])
        if "views" in outputs:
            for i, look in enumerate(outputs["views"]):
                value = self.of(call["inputs"][look["input"]])
                value.handles += 1
                self.tensors[call["made"] + i] = (value, look["layout"])
            return
        op, layouts = call["op"], outputs["fresh"]
        self.ops += 1
        reads = distinct(self.of(tensor) for tensor in call["inputs"])
        again = op["rematerializable"] and layouts
        put_off = op["rematerializable"] and not reads
        path = Op(op["cost"], reads, op["workspace"], len(self.steps)) if again else None
        made = [self.new(call["made"] + i, layout, path) for i, layout in enumerate(layouts)]
        if again:
            path.makes = made
            self.paths.append(path)
        if not put_off:
            at = self.step(reads, made, [op["workspace"]])
            for value in made:
                value.made = at
                if not again:
                    self.hold(value, at)

    def on_update_all(self, calls):
        reads = [self.of(tensor) for call in calls for tensor in call["inputs"]]
        at = self.step(reads, scratches=[call["op"]["workspace"] for call in calls])
        ended = []
        for number, call in enumerate(calls):
            self.ops += 1
            updates = call["outputs"]["updates"]
            consumed = set(call.get("consumed", []))
            for i, layout in enumerate([None] * updates["targets"] + updates["fresh"]):
                old = None
                if layout is None:
                    target = call["inputs"][i]
                    value, layout = self.tensors[target]
                    whole = layout["offset"] == 0 and bytes_of(layout) == value.size
                    last = i in consumed and value.handles == 1 and reads.count(value) == 1
                    old = value if whole and last else None
                    layout = {**layout, "offset": 0}
                    if i in consumed:
                        ended.append(target)
                new = self.new(call["made"] + i, layout)
                new.made, new.update = at, (number, old)
                self.steps[at].makes.add(new)
                self.hold(new, at)
        for target in ended:
            self.end(target, at)

    def on_get(self, tensor):
        self.step([self.of(tensor)])

    def on_commit(self, tensor):
        value = self.of(tensor)
        self.hold(value, self.step([value]))

    def on_replace(self, what):
        value, layout = self.tensors[what["value"]]
        at = self.step([value])
        self.hold(value, at)
        value.handles += 1
        self.tensors[what["made"]] = (value, layout)
        if what["consumed"]:
            self.end(what["target"], at)

    def on_del(self, tensor):
        self.end(tensor, len(self.steps) - 1)

    def finish(self):
        for at, step in enumerate(self.steps):
            for value in step.reads:
                if value.leaf:
                    self.hold(value, at)
        for value in self.values:
            if value.held_from is not None and value.held_to is None:
                value.held_to = len(self.steps) - 1
        return self

    def useful(self):
        """For each command, the values that it or a later command may read, directly or to make other values."""
        useful, later = [None] * len(self.steps), set()
        for at in reversed(range(len(self.steps))):
            todo = [value for value in self.steps[at].reads if value not in later]
            later = set(later)
            while todo:
                value = todo.pop()
                if value not in later:
                    later.add(value)
                    todo += value.path.reads if value.path else []
            useful[at] = later
        return useful

    def working_set(self, at):
        """Bytes that a command needs, including the values that must stay in memory during the command."""
        step = self.steps[at]
        held = {value for value in self.values if value.held_from is not None and value.held_from < at <= value.held_to}
        together = sum(value.size for value in held | step.reads)
        most = 0
        for number, scratch in enumerate(step.scratches):
            made = (value for value in step.makes if value.update is None or value.update[0] == number)
            together += sum(value.size for value in made if value.update is None or value.update[1] is None)
            most = max(most, together + scratch)
        return most

    def least_bytes(self):
        return max(self.working_set(at) for at in range(len(self.steps)))

    def peak_bytes(self):
        """Peak of the bytes in use if each value is held from its first run to its last use."""
        last = {value: value.made for value in self.values}
        first = dict(last)
        for at, step in enumerate(self.steps):
            for value in step.reads:
                last[value] = at
                first[value] = at if first[value] is None else first[value]
        most = 0
        for at in range(len(self.steps)):
            idle = (value for value in self.values if value.held_from is None or not value.held_from < at <= value.held_to)
            idle = (value for value in idle if value not in self.steps[at].reads and first[value] is not None)
            most = max(most, self.working_set(at) + sum(v.size for v in idle if first[v] < at < last[v]))
        return most


SIZES = {"f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "u32": 4, "bf16": 2, "f16": 2, "i16": 2, "u16": 2}


def bytes_of(layout):
    size = SIZES.get(layout["dtype"], 1)
    for length in layout["shape"]:
        size *= length
    return size


def distinct(items):
    return list(dict.fromkeys(items))


class Plans:
    """All plans for a program in a budget, as a model for CP-SAT.

    Time is a sequence of slots. Before each command, each round has a slot for each op that can run again. Then
    the command has one slot for each of its calls. A value is in memory from the slot that makes it.
    """

    def __init__(self, program, budget, runs, rounds):
        self.program, self.rounds = program, rounds
        self.model = model = cp_model.CpModel()
        useful = program.useful()
        stages = {path: stages_of(path, useful) for path in program.paths}
        self.paths = [path for path in program.paths if stages[path] or not path.free]
        self.calls = max(len(step.scratches) for step in program.steps)
        self.width = rounds * len(self.paths) + self.calls
        self.horizon = self.width * len(program.steps)
        # Value -> its intervals: begin, end, and whether the interval exists.
        self.copies = {value: [] for value in program.values}
        self.last_use = {}
        for at, values in enumerate(useful):
            for value in values:
                self.last_use[value] = self.after(at)
        for value in program.values:
            if value.held_to is not None:
                self.last_use[value] = max(self.last_use.get(value, 0), self.after(value.held_to))
        self.intervals, self.demands = [], []
        self.costs = []
        self.runs = []
        # Op -> command -> whether the op runs between this command and the previous command.
        self.before = {path: {} for path in program.paths}
        for number, path in enumerate(self.paths):
            self.path(number, path, stages[path], runs)
        for value in program.values:
            if value.path is None:
                self.once(value)
        # An op that reads a value comes after the ops that make the value.
        for path, begin, present in self.runs:
            for value in path.reads:
                self.read(value, begin, begin + 1, present)
        for at, step in enumerate(program.steps):
            self.command(at, step)
        for value in program.values:
            if value.held_from is not None and value.path is not None:
                self.held(value)
        model.add_cumulative(self.intervals, self.demands, budget)
        self.at_commands(budget)
        scale = STEPS / max(sum(path.cost for path in self.paths), 1e-300)
        integral = all(path.cost == int(path.cost) for path in self.paths)
        self.scale = 1 if integral else scale
        model.minimize(sum(round(path.cost * self.scale) * present for path, present in self.costs))

    def begin_of(self, at):
        return at * self.width + self.rounds * len(self.paths)

    def after(self, at):
        return self.begin_of(at) + self.calls

    def occupy(self, begin, end, present, demand):
        if demand > 0:
            length = self.model.new_int_var(0, self.horizon, "")
            self.intervals.append(self.model.new_optional_interval_var(begin, length, end, present, ""))
            self.demands.append(demand)

    def path(self, number, path, stages, runs):
        model, before = self.model, None
        for run in range(runs + 1):
            if run == 0 and not path.free:
                begin, present = self.begin_of(path.first), model.new_constant(1)
            else:
                if not stages:
                    break
                present = model.new_bool_var("")
                turn = model.new_int_var(0, self.rounds - 1, "")
                begin = model.new_int_var(0, self.horizon, "")
                before_which = {at: model.new_bool_var("") for at in stages}
                model.add(sum(before_which.values()) == present)
                stage = sum(at * is_here for at, is_here in before_which.items())
                offset = turn * len(self.paths) + number
                model.add(begin == stage * self.width + offset).only_enforce_if(present)
                for at, is_here in before_which.items():
                    self.before[path].setdefault(at, []).append(is_here)
                self.runs.append((path, begin, present))
                if path.scratch:
                    self.occupy(begin, begin + 1, present, path.scratch)
                if run > 0:
                    self.costs.append((path, present))
            if before is not None:
                model.add_implication(present, before[1])
                model.add(begin > before[0]).only_enforce_if(present)
            for value in path.makes:
                # A value that no command uses is in memory only while it is made.
                latest = max(self.last_use.get(value, 0), self.begin_of(path.first) + self.calls)
                end = model.new_int_var(0, max(latest, self.horizon), "")
                model.add(end >= begin + 1).only_enforce_if(present)
                if before is not None:
                    model.add(self.copies[value][-1][1] <= begin).only_enforce_if(present)
                self.copies[value].append((begin, end, present))
                self.occupy(begin, end, present, value.size)
            before = (begin, present)

    def once(self, value):
        """Adds a value that cannot be made again."""
        model, present = self.model, self.model.new_constant(1)
        call, old = value.update or (0, None)
        early, late = self.begin_of(value.made) + call, self.after(value.made)
        begin = early
        end = model.new_int_var(late, self.horizon, "")
        model.add(end >= self.after(value.held_to))
        if old is not None:
            takes_over = model.new_bool_var("")
            begin = model.new_int_var(early, late, "")
            model.add(begin == late).only_enforce_if(takes_over)
            model.add(begin == early).only_enforce_if(~takes_over)
            value.takes_over = takes_over
        self.copies[value].append((begin, end, present))
        self.occupy(begin, end, present, value.size)

    def read(self, value, begin, until, present):
        """Adds a read of a value from slot `begin` to slot `until`: one of the value's intervals must cover these slots."""
        chosen = []
        for its_begin, its_end, exists in self.copies[value]:
            if isinstance(its_begin, int) and isinstance(begin, int) and its_begin >= begin:
                continue
            this = self.model.new_bool_var("")
            self.model.add_implication(this, exists)
            self.model.add(its_begin <= begin - 1).only_enforce_if(this)
            self.model.add(its_end >= until).only_enforce_if(this)
            chosen.append((this, its_end))
        self.model.add(sum(this for this, _ in chosen) == present)
        return chosen

    def command(self, at, step):
        model, begin = self.model, self.begin_of(at)
        until = begin + len(step.scratches)
        for value in step.reads:
            heirs = [new for new in step.makes if new.update and new.update[1] is value]
            # A value that is updated in place stays in memory during the whole command.
            chosen = self.read(value, begin, self.after(at) if heirs else until, 1)
            for heir in heirs:
                for this, end in chosen:
                    model.add(end == self.after(at)).only_enforce_if(this, heir.takes_over)
        for number, scratch in enumerate(step.scratches):
            if scratch:
                self.intervals.append(model.new_fixed_size_interval_var(begin + number, 1, ""))
                self.demands.append(scratch)

    def held(self, value):
        """Keeps a value in memory between two commands: an interval lasts to the end, or the next interval begins in time."""
        model, copies = self.model, self.copies[value]
        since, until = self.begin_of(value.held_from), self.after(value.held_to)
        for (_, end, present), after in zip(copies, [*copies[1:], None]):
            stays = model.new_bool_var("")
            model.add(end >= until).only_enforce_if(stays)
            ways = [stays]
            if after is not None:
                before, anew = model.new_bool_var(""), model.new_bool_var("")
                for way in (before, anew):
                    model.add_implication(way, after[2])
                model.add(after[0] <= since).only_enforce_if(before)
                model.add(after[0] == end).only_enforce_if(anew)
                ways += [before, anew]
            model.add_bool_or(*ways, ~present)

    def at_commands(self, budget):
        """Adds redundant constraints: sums at the instants of commands, from which CP-SAT derives lower bounds."""
        model, steps = self.model, self.program.steps
        there = {}
        for value in self.program.values:
            end = self.last_use.get(value, 0)
            first = value.path.first if value.made is None else value.made + 1
            last = None
            for at in range(first, len(steps)):
                if self.begin_of(at) >= end:
                    break
                is_there = there[value, at] = model.new_bool_var("")
                if value.held_from is not None and value.held_from < at <= value.held_to or value in steps[at].reads:
                    model.add(is_there == 1)
                made = self.before[value.path].get(at, []) if value.path else []
                if last is not None or value.made is None:
                    model.add(is_there <= sum(made) + (0 if last is None else last))
                last = is_there
        for path in self.paths:
            for at, runs in self.before[path].items():
                for value in path.reads:
                    made = self.before[value.path].get(at, []) if value.path else []
                    if value.made is None or value.made < at - 1:
                        model.add(sum(runs) <= self.rounds * (sum(made) + there.get((value, at - 1), 0)))
        for at, step in enumerate(steps):
            needed = step.scratches[0] + sum(v.size for v in step.makes if v.update is None)
            rest = (v.size * there[v, at] for v in self.program.values if (v, at) in there)
            model.add(sum(rest) <= budget - needed)

    def solve(self, seconds, workers):
        """Cost of the best plan found, a lower bound on the cost of any plan, and whether the search finished. None for no
        value."""
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = workers
        status = solver.solve(self.model)
        if status == cp_model.INFEASIBLE:
            return None, None, True
        if status == cp_model.UNKNOWN:
            return None, None, False
        if status == cp_model.MODEL_INVALID:
            sys.exit("CP-SAT: " + self.model.validate())
        runs = [(path, solver.boolean_value(present)) for path, present in self.costs]
        cost = sum(path.cost for path, is_run in runs if is_run)
        return cost, solver.best_objective_bound / self.scale, status == cp_model.OPTIMAL


def stages_of(path, useful):
    """Commands before which an op may run again so that a later command can use its outputs."""
    first = path.first if path.free else path.first + 1
    return [at for at in range(first, len(useful)) if any(value in useful[at] for value in path.makes)]


def bound_of(remat, recording, budget):
    """Least cost by `remat bound`, or None if the budget is refused."""
    command = [remat, "bound", recording, "--arena", "bytes", "--budget", f"{budget}B", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{recording}: {done.stderr}")
    return json.loads(done.stdout)["least_cost"]


def known_of(recording):
    """Budget -> cost of the best plan by the search of `exact.rs`; the cost is None if there is no plan."""
    file = recording.with_suffix(".least")
    lines = map(str.split, file.read_text().splitlines()) if file.exists() else []
    return {int(budget): None if cost == "none" else float(cost) for budget, cost in lines}


def main(options):
    shares, counts = [], dict.fromkeys(["refused", "solved", "unproven", "without a plan", "bad", "as by the other search"], 0)
    for recording in options.recordings:
        program = Program(recording.read_text().splitlines()).finish()
        known = known_of(recording)
        low, high = program.least_bytes(), program.peak_bytes()
        between = [low + int((high - low) * float(share)) for share in options.at.split(",")]
        for budget in sorted({low - 1, *(known or between)} - {0}):
            bound = bound_of(options.remat, recording, budget)
            plans = Plans(program, budget, options.runs, options.rounds)
            found, none_below, is_settled = plans.solve(options.seconds, options.workers)
            # Costs of recordings are rounded for CP-SAT.
            is_bad = (bound is None) != (budget < low) or found is not None and (bound is None or bound > found * (1 + 1e-6))
            told = "refused" if bound is None else f"bound {bound:.6g}"
            if found is None:
                told += ", no plan" if is_settled else ", no plan found in time"
            else:
                told += f", plan {found:.6g} ({'optimal' if is_settled else f'none below {none_below:.6g}'})"
            if budget in known:
                other = known[budget]
                told += f", {'none' if other is None else f'{other:.6g}'} by the other search"
                is_bad |= found is not None and (other is None or found < other)
                counts["as by the other search"] += is_settled and found == other
            counts["bad"] += is_bad
            counts["refused"] += bound is None
            if bound is not None:
                counts["without a plan"] += found is None
                counts["solved" if is_settled else "unproven"] += found is not None
                if is_settled and found:
                    shares.append(bound / found)
            print(f"{recording.stem:14} {program.ops:4} ops, {budget:8} of {low} to {high}: {told}{'  BAD' * is_bad}", flush=True)
    print(f"{len(options.recordings)} programs; budgets: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    if shares:
        mean = sum(shares) / len(shares)
        print(f"Of {len(shares)} optima above 0, the bound is {mean:.3f} in the mean, {min(shares):.3f} at least, {max(shares):.3f} at most")
    return 1 if counts["bad"] or not shares else 0


if __name__ == "__main__":
    sys.exit(main(arguments()))
