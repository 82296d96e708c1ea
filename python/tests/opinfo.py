"""All operators that PyTorch tests, under a budget that evicts everything evictable after each op.

    python tests/opinfo.py                    all operators and types: some minutes on each core
    python tests/opinfo.py --part 3/20        each twentieth, from the third on
    python tests/opinfo.py --only conv --verbose

A pair of an operator and a type passes if its samples have the bits of plain PyTorch after they were evicted. Each
operator runs in a process of its own, so that a crash is seen. Prints each pair that does not pass, and why; ends with
exit code 1 after a crash or other bits.
"""

import argparse
import collections
import json
import os
import signal
import sys
import time
import warnings

import torch

import remat

# Samples of each pair.
SAMPLES = 3
# Seconds for an operator with all its types.
PATIENCE = 120


def tensors(value):
    """The tensors in a result."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def bits(value):
    """The bits of a result, in a form that can be compared."""
    found = []
    for tensor in tensors(value):
        tensor = tensor.detach().resolve_conj().resolve_neg()
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        if tensor.is_quantized:
            tensor = tensor.int_repr()
        if tensor.is_nested:
            found.append(("nested", [bits(part) for part in tensor.unbind()]))
            continue
        raw = tensor.contiguous().clone().view(-1).view(torch.uint8) if tensor.dim() else tensor.clone().view(1).view(torch.uint8)
        found.append((tuple(tensor.shape), str(tensor.dtype), bytes(raw.tolist())))
    if not found and not isinstance(value, (list, tuple, dict)):
        found.append(repr(value))
    return found


def fresh(value):
    """A copy of an argument, made by ops, so that it can be evicted."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized or value.is_nested:
            return value.clone()
        copy = value.detach().clone()
        return copy.requires_grad_() if value.requires_grad else copy
    if isinstance(value, (list, tuple)):
        items = [fresh(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: fresh(item) for key, item in value.items()}
    return value


def current(op):
    """The operator as a program finds it now. A budget may have replaced it by another function."""
    name = op.name.rpartition(".")[2]
    for module in (torch.linalg, torch):
        function = getattr(module, name, None)
        if function is op.op or getattr(function, "__wrapped__", None) is op.op:
            return function
    return op


def call(op, sample):
    torch.manual_seed(7)
    return current(op)(fresh(sample.input), *fresh(sample.args), **fresh(sample.kwargs))


def check(op, dtype):
    """The outcome for a pair, and a reason."""
    try:
        torch.manual_seed(0)
        samples = []
        if "empty" in op.name:
            return "not comparable", "the bits of memory that nobody wrote to"
        for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
            samples.append(sample)
            if len(samples) == SAMPLES:
                break
    except Exception as error:
        return "no samples", f"{type(error).__name__}: {str(error)[:80]}"
    recomputed, leaves, other = 0, 0, None
    seen = 0
    for sample in samples:
        try:
            plain = bits(call(op, sample))
            if bits(call(op, sample)) != plain:
                other = "plain PyTorch gives other bits each time"
                continue
        except Exception as error:
            other = f"plain PyTorch raises {type(error).__name__}: {str(error)[:60]}"
            continue
        with remat.budget("4GiB", policy="dtr") as budget:
            budget._session.stress(True)
            try:
                result = call(op, sample)
                budget._session.evict_all()
                states = [budget._session.state(tensor) for tensor in tensors(result)]
                mine = bits(result)
            except Exception as error:
                return "raises", f"{type(error).__name__}: {str(error)[:120]}"
            finally:
                budget._session.stress(False)
            once = budget._session.once()
        if mine != plain:
            return "other bits", f"sample {seen}"
        seen += 1
        if "evicted" in states or not states or all(tensor.numel() == 0 for tensor in tensors(result)):
            recomputed += 1
        else:
            leaves += 1
            other = f"{', '.join(once) or 'no name'}: {states[:3]}"
    if not seen:
        return "not comparable", other
    return ("recomputed", None) if recomputed else ("leaves", other)


def run(op, types):
    """The outcomes of an operator, from a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as out, open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
            os.dup2(nothing.fileno(), 1)
            try:
                signal.alarm(PATIENCE)
                for dtype in types:
                    out.write(json.dumps([str(dtype), *check(op, dtype)]) + "\n")
                    out.flush()
            except BaseException as error:
                out.write(json.dumps([str(dtype), "raises", f"the check: {error!r}"[:120]]) + "\n")
                out.flush()
        os._exit(0)
    os.close(writer)
    found = {}
    with os.fdopen(reader) as lines:
        for line in lines:
            dtype, outcome, why = json.loads(line)
            found[dtype] = (outcome, why)
    _, status = os.waitpid(child, 0)
    for dtype in types:
        if str(dtype) not in found:
            found[str(dtype)] = ("crash", f"status {status}") if status else ("raises", "the process ended")
            status = 0
            break
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1", metavar="I/N", help="each Nth operator, from the Ith on")
    parser.add_argument("--only", default="", metavar="TEXT", help="operators whose name has this text")
    parser.add_argument("--verbose", action="store_true", help="print all pairs")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    from torch.testing._internal.common_methods_invocations import op_db

    part, parts = map(int, args.part.split("/"))
    ops = [op for op in op_db if args.only in op.name][part - 1 :: parts]
    counts, start = collections.Counter(), time.monotonic()
    for op in ops:
        types = sorted(op.supported_dtypes("cpu"), key=str)
        for dtype, (outcome, why) in run(op, types).items():
            counts[outcome] += 1
            if args.verbose or outcome != "recomputed":
                name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
                print(f"{name:40} {dtype:18} {outcome:14} {why or ''}", flush=True)
    total = sum(counts.values()) - counts["no samples"] - counts["not comparable"]
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    share = 100 * counts["recomputed"] / max(1, total)
    print(f"{share:.1f} % of {total} pairs recomputed, {len(ops)} operators, {time.monotonic() - start:.0f} s")
    return bool(counts["crash"] or counts["other bits"])


if __name__ == "__main__":
    sys.exit(main())
