"""Predictions of how much memory a step takes, and which budgets suffice, without computing values."""

import contextlib
import dataclasses
import gc
import os
import tempfile
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ._budget import _UNLIMITED, _human, _size, budget
from ._remat import Session, replays

# Budgets to try, in percent of the bytes that the step takes without a limit.
_PERCENTS = list(range(100, 5, -10))


@dataclasses.dataclass(frozen=True)
class Row:
    """Budget, and the predicted cost of a step in this budget."""

    budget_bytes: int
    slowdown: float | None
    """Work of the step with recomputation, as a multiple of the step's own work. None if the budget is too small, or if
    the step would do more than twice its work."""


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """Result of ``remat.suggest``, which ``print`` shows as a table."""

    peak_bytes: int
    """Bytes that the step takes without a limit."""
    rows: tuple[Row, ...]
    """Budgets, the largest first."""
    ops: int
    """Operators in all steps that were tried."""
    steps: int
    assumed: dict[str, int]
    """Numbers of calls with an assumed result, by operator: an assumed number, or the largest size of a result."""

    @property
    def smallest_bytes(self):
        """Smallest budget found in which the step passes; None if there is none."""
        return min((row.budget_bytes for row in self.rows if row.slowdown is not None), default=None)

    def __str__(self):
        lines = [f"{_human(self.peak_bytes)} without a limit, in {self.steps} steps of {self.ops // self.steps:,} ops"]
        lines.append(f"{'budget':>12} {'share':>8} {'slowdown':>9}")
        for row in self.rows:
            share = f"{100 * row.budget_bytes / self.peak_bytes:.0f} %"
            slowdown = "-" if row.slowdown is None else f"x{row.slowdown:.3f}"
            note = "  smallest that passes" if row.budget_bytes == self.smallest_bytes else ""
            lines.append(f"{_human(row.budget_bytes):>12} {share:>8} {slowdown:>9}{note}")
        for name, count in self.assumed.items():
            what = "1, or False" if name.startswith("aten::_local_scalar_dense") else "an answer, or the largest result"
            lines.append(f"assumed: {what}, in {count:,} {'call' if count == 1 else 'calls'} of {name}")
        return "\n".join(lines)


def _with_gradients():
    """Tensors with a gradient."""
    for tensor in gc.get_objects():
        if issubclass(type(tensor), torch.Tensor) and tensor.is_leaf and tensor.grad is not None:
            yield tensor


@contextlib.contextmanager
def _as_before():
    """Restores the optimizers at the end, and drops the gradients of the steps."""
    states = {}
    # No reference keeps a gradient longer than the step needs the gradient.
    known = {id(tensor.grad): weakref.ref(tensor.grad) for tensor in _with_gradients()}

    def keep(optimizer, *_):
        if optimizer not in states:
            states[optimizer] = {key: dict(state) for key, state in optimizer.state.items()}

    hook = register_optimizer_step_pre_hook(keep)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        hook.remove()
        for optimizer, state in states.items():
            optimizer.state.clear()
            optimizer.state.update(state)
        for tensor in _with_gradients():
            grad = known.get(id(tensor.grad))
            if grad is None or grad() is not tensor.grad:
                tensor.grad = None


def suggest(step, size=None, *, steps=3, policy="learned:portfolio", seed=0, device=None):
    """Predicts how many bytes a training step takes, and how much slower the step would be in smaller budgets.

    The step runs without values: no kernel computes, and no memory is allocated beyond the existing parameters and
    data. A model made on the device ``meta`` needs no memory at all. Afterwards, parameters, buffers, the optimizer's
    state and the random generators are as before, and the gradients of the step are dropped. Other state that the
    step changes, such as the counter of a schedule, is not restored.

    A number that the step reads, such as ``loss.item()``, is 1, or False. A result whose size depends on values
    is assumed to have its largest possible size. The answer lists these assumptions.

    Args:
        step: a function of no arguments that does one training step: forward pass, backward pass and update.
        size: a budget or a list of budgets, in bytes or as text such as ``"24GiB"``. Each becomes a row of the answer.
        steps: number of steps to run. The first step makes the optimizer's state.
        policy: how to choose the values to evict, as in ``remat.budget``.
        seed: for policies that choose at random.
        device: the device whose tensors count, as in ``remat.budget``. Tensors on ``meta`` always count.

    Returns:
        A ``Suggestion``.
    """
    if steps < 1:
        raise ValueError(f"steps: {steps} steps take no memory; run at least 1")
    sizes = [] if size is None else size if isinstance(size, (list, tuple)) else [size]
    texts = []
    for one in sizes:
        text, share = _size(one)
        if share is not None:
            raise ValueError(f"budget: {one} is a share, and shares are tried anyway; give bytes, or a text such as '24GiB'")
        # A size or policy that does not exist is an error now, not after the steps.
        Session(text, policy=policy)
        texts.append(text)
    with tempfile.TemporaryDirectory(prefix="remat-") as folder:
        recording = os.path.join(folder, "step.jsonl")
        with _as_before(), budget(_UNLIMITED, policy=policy, record=recording, seed=seed, device=device) as run:
            run._session.dry()
            for done in range(steps):
                step()
                if run.stats().steps <= done:
                    run.step()
            assumed = run._session.guesses()
        stats = run.stats()
        if stats.ops == 0:
            raise ValueError(
                f"the step calls no operator on {run._device} or meta; give device='cpu' for a model on the CPU"
            )
        peak, rows = replays(recording, texts, _PERCENTS, policy=policy, seed=seed)
    return Suggestion(peak, tuple(Row(*row) for row in rows), stats.ops, steps, assumed)


__all__ = ["Row", "Suggestion", "suggest"]
