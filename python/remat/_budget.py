"""The budget: a dispatch mode of PyTorch, and hooks that are installed while a budget is on."""

import atexit
import contextlib
import dataclasses
import os
import re
import sys
import warnings

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from . import _names, _readers, _refusals, _threads
from ._remat import OutOfMemory, Session

# A budget in which nothing is evicted, for the first step, if the size is a share of the first step's peak.
_UNLIMITED = str(1 << 60)


class _Mode(TorchDispatchMode):
    """Dispatch mode that PyTorch sees. The module `_remat` handles operator calls before they reach the mode."""

    supports_higher_order_operators = True

    def __init__(self, session):
        super().__init__()
        self._session = session

    @classmethod
    def is_infra_mode(cls):
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(getattr(kind, "__torch_dispatch__", None) is not torch._C._disabled_torch_dispatch_impl for kind in types):
            # The subclass handles the call. Its own calls come back to this mode.
            return NotImplemented
        if isinstance(func, torch._ops.HigherOrderOperator):
            # It runs as one, on resident operands.
            for leaf in torch.utils._pytree.tree_leaves((args, kwargs)):
                if isinstance(leaf, torch.Tensor):
                    self._session.keep(leaf)
        return func(*args, **(kwargs or {}))


@dataclasses.dataclass(frozen=True)
class Stats:
    """Counters of a budget. Sizes are in bytes, costs in the unit of the cost model."""

    budget_bytes: int
    used_bytes: int
    peak_bytes: int
    live_bytes: int
    live_peak_bytes: int
    leaf_bytes: int
    """Bytes that cannot be evicted, now or at the end of a step: parameters, the optimizer's state, data, and what was
    updated in place."""
    reserved_bytes: int
    """Bytes that the process has for tensors, with free space between them: pages of remat's heap on the CPU, and what
    PyTorch's allocator has reserved on a GPU."""
    ops: int
    recomputed_ops: int
    evictions: int
    evicted_bytes: int
    steps: int
    thrashed_steps: int
    tensors: int
    storages: int
    paths: int
    learning_bytes: int
    calls: int
    foreign_calls: int
    unknown_calls: int
    misjudged_calls: int
    base_cost: float
    recompute_cost: float
    search_seconds: float

    @property
    def recompute_ratio(self):
        """Cost of recomputation, as a share of the cost of all first runs."""
        return self.recompute_cost / self.base_cost if self.base_cost else 0.0


def _size(size):
    """A size as text for the engine, and its share of the first step; None if the size is not a share."""
    if isinstance(size, bool) or not isinstance(size, (int, float, str)):
        raise TypeError(f"budget: {size!r} is not a size; give bytes, or a text such as '6GiB' or '40%'")
    if isinstance(size, str) and (share := re.fullmatch(r"\s*([0-9.]+)\s*%\s*", size)):
        share = float(share[1]) / 100
        if not 0 < share:
            raise ValueError(f"budget: {size} of the first step holds no tensor; give a share above 0 %")
        return _UNLIMITED, share
    if isinstance(size, float):
        if not size.is_integer():
            raise ValueError(f"budget: {size} is not a number of bytes; give an integer")
        size = int(size)
    return str(size), None


def _human(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    raise AssertionError


class budget:
    """Limits the bytes of all tensors on a device, taken together.

    Parameters count, and so do all other tensors that ops use while the budget is on.

    Args:
        size: bytes, or a text such as ``"6GiB"``. ``"40%"`` is a share of the peak of the first step, which runs
            without a limit.
        policy: how to choose the values to evict: a policy of ``remat``, such as ``"dtr"`` or ``"learned"``.
        threshold: size in use above which values are evicted before each op.
        recompute_limit: limit on recomputed work, as a multiple of the program's own work; beyond it, ops fail.
        record: file for a recording, which ``remat sweep`` and ``remat bound`` read.
        seed: for policies that choose at random.
        cost: ``"flops"`` (evictions repeat from run to run) or ``"measured"``.
        device: ``"cpu"`` or ``"cuda:0"``; by default the current GPU if there is one.

    Raises:
        OutOfMemory: in an op, if memory does not suffice even after everything evictable was evicted.
    """

    _active = None

    def __init__(
        self,
        size,
        *,
        policy="learned:portfolio",
        threshold=None,
        recompute_limit=None,
        record=None,
        seed=0,
        cost="flops",
        device=None,
    ):
        if cost not in ("flops", "measured"):
            raise ValueError(f"cost: {cost!r} is no cost model; choose 'flops' or 'measured'")
        if device is None:
            device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
        self._device = torch.device(device)
        if self._device.type not in ("cpu", "cuda"):
            raise ValueError(f"device: a budget is for cpu or cuda, not for {self._device.type}")
        if self._device.type == "cuda" and self._device.index is None:
            self._device = torch.device("cuda", torch.cuda.current_device())
        text, self._share = _size(size)
        self._session = Session(
            text,
            policy=policy,
            threshold=None if threshold is None else _size(threshold)[0],
            recompute_limit=recompute_limit,
            record=None if record is None else os.fspath(record),
            seed=seed,
            measured=cost == "measured",
            device=str(self._device),
        )
        self._mode = _Mode(self._session)
        self._exit = None
        self._last = None
        self._names = None

    def start(self):
        """Begins the budget, which lasts until ``stop``. A ``with`` statement calls ``start`` and ``stop``."""
        if budget._active is not None:
            raise RuntimeError("another budget is in use; stop it first, because a process has one budget at a time")
        if self._last is not None:
            raise RuntimeError("this budget was stopped; make another one")
        _refusals.check()
        with contextlib.ExitStack() as stack:
            kind = {"cpu": 0, "cuda": 1}[self._device.type]
            self._session.begin(self._mode, kind, self._device.index if self._device.type == "cuda" else -1)
            budget._active = self
            stack.callback(self._close)
            stack.enter_context(_refusals.in_place())
            stack.enter_context(_readers.in_place(self._session))
            stack.enter_context(_threads.in_place(self._mode))
            self._names = stack.enter_context(_names.in_place(self._session))
            # Registered after the hook of the names, because only the first step gives names.
            hook = register_optimizer_step_post_hook(self._optimized)
            stack.callback(hook.remove)
            if self._device.type == "cuda":
                stack.enter_context(_without_benchmarks())
            stack.enter_context(_eager())
            stack.enter_context(self._mode)
            self._exit = stack.pop_all()
        return self

    def _optimized(self, *_):
        # The hook is also called for optimizers in threads without the budget.
        if self._mode in _get_current_dispatch_mode_stack():
            self.step()

    def _close(self, restore=True):
        self._last = self.stats()
        budget._active = None
        self._session.close(restore)

    def stop(self):
        """Ends the budget: all tensors that the program holds become resident and ordinary again."""
        if self._exit is None:
            return
        exit, self._exit = self._exit, None
        exit.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *error):
        self.stop()

    def step(self):
        """Ends a step. Optimizers call this method; a loop without an optimizer must call it itself."""
        self._session.step()
        if self._names is not None:
            self._names.end()
        if self._share is not None:
            peak, share, self._share = self.stats().peak_bytes, self._share, None
            try:
                self._session.set_budget(str(max(1, int(peak * share))))
            except RuntimeError as error:
                raise OutOfMemory(
                    f"{100 * share:g} % of {_human(peak)}, the peak of the first step, is too little: {error}. "
                    "The first step makes the optimizer's state only at its end; give a larger share, or a size"
                ) from None

    def set(self, size):
        """Changes the budget to a number of bytes, or to a text such as ``"6GiB"``."""
        text, share = _size(size)
        if share is not None:
            raise ValueError(f"budget: {size} is a share of the first step; give bytes, or a text such as '6GiB'")
        self._session.set_budget(text)

    def stats(self):
        """Counters so far, or the final counters after ``stop``."""
        if self._last is not None:
            return self._last
        stats = self._session.stats()
        reserved = stats.pop("heap_bytes")
        if self._device.type == "cuda":
            reserved = torch.cuda.memory_reserved(self._device)
        return Stats(reserved_bytes=reserved, **stats)

    def __repr__(self):
        stats = self.stats()
        limit = "no limit yet" if self._share is not None else _human(stats.budget_bytes)
        return (
            f"budget {limit}: peak {_human(stats.peak_bytes)}, {_human(stats.leaf_bytes)} of which cannot be evicted; "
            f"{stats.evictions:,} evictions, {100 * stats.recompute_ratio:.1f} % recomputed in {stats.steps:,} steps"
        )


@contextlib.contextmanager
def _without_benchmarks():
    """Turns off the benchmarks of cuDNN, which may choose another algorithm when an op is recomputed."""
    was = torch.backends.cudnn.benchmark
    if was:
        warnings.warn(
            "torch.backends.cudnn.benchmark is off within remat.budget, because a recomputed op could give other bits",
            stacklevel=4,
        )
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = was


@contextlib.contextmanager
def _eager():
    """Makes compiled functions run eagerly. The functions stay compiled for later calls without a budget."""
    try:
        stance = torch.compiler.set_stance("force_eager")
    except RuntimeError as error:
        warnings.warn(f"torch.compile: {error}", stacklevel=2)
        yield
        return
    with stance, _telling_of_compiled():
        yield


@contextlib.contextmanager
def _telling_of_compiled():
    """Warns at the first call of a compiled function, because users expect compiled functions to be faster."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    # PyTorch asks this function, at each call of a compiled function, what to run in its place.
    asked = getattr(frames, "_callback_from_stance", None)
    if asked is None:
        yield
        return
    told = False

    def ask(compiler):
        nonlocal told
        if compiler not in (None, False) and not told:
            told = True
            warnings.warn(
                "torch.compile: within remat.budget, compiled functions run eagerly, op by op, because the budget "
                "evicts and recomputes single ops. After the budget, they run compiled again.",
                stacklevel=3,
            )
        return asked(compiler)

    frames._callback_from_stance = ask
    try:
        yield
    finally:
        frames._callback_from_stance = asked


def _before_fork():
    # The child reads what is resident now. A GPU cannot be used in a forked process.
    if budget._active is not None and budget._active._device.type == "cpu":
        budget._active._session.bring_all()


@atexit.register
def _at_exit():
    # Ends the recording. Restoring values that nobody will read could take long, or more memory than there is.
    if budget._active is not None:
        budget._active._close(restore=False)


def _in_child():
    # The engine and its bytes belong to the parent process, which continues to use them.
    if budget._active is not None:
        Session.forked()


os.register_at_fork(before=_before_fork, after_in_child=_in_child)

__all__ = ["OutOfMemory", "Stats", "budget"]
