"""Refusals of parts of PyTorch that manage storages themselves, and so cannot be used while a budget is on."""

import contextlib
import functools

import torch

_REASON = {
    "CUDAGraph": "a graph cannot repeat evictions",
    "DistributedDataParallel": "it copies gradients into buckets of its own",
    "DataParallel": "it moves replicas between devices in threads of its own",
    "FSDPModule": "it frees and fills the storages of parameters by itself",
    "FullyShardedDataParallel": "it frees and fills the storages of parameters by itself",
}


def check():
    """Raises an error if a PyTorch feature that does not work under a budget is on."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a CUDA graph is being captured; a budget evicts, which a graph cannot repeat")


def check_module(module):
    """Raises if a module that is about to run does not work under a budget."""
    if any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
        _refuse("FSDPModule", _REASON["FSDPModule"])()


def _refuse(name, reason):
    def refuse(*args, **kwargs):
        raise RuntimeError(f"{name} does not work under a remat budget: {reason}; use it without the budget")

    return refuse


@contextlib.contextmanager
def in_place():
    """Installs the refusals."""
    import torch.nn.parallel as parallel

    owners = [parallel.DistributedDataParallel, parallel.DataParallel]
    with contextlib.suppress(ImportError, AttributeError):
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

        owners += [FullyShardedDataParallel, FSDPModule]
    # A model is usually made before the budget begins, so its use is refused, too.
    methods = [(owner, name) for owner in owners for name in ("__init__", "forward") if hasattr(owner, name)]
    methods += [(torch.cuda.CUDAGraph, name) for name in ("capture_begin", "replay")]
    was = [(owner, name, getattr(owner, name), name in owner.__dict__) for owner, name in methods]
    for owner, name, method, _ in was:
        label = "A CUDA graph" if owner is torch.cuda.CUDAGraph else owner.__name__
        refuse = _refuse(label, _REASON[owner.__name__])
        setattr(owner, name, functools.wraps(method)(refuse))
    try:
        yield
    finally:
        for owner, name, method, is_own in was:
            if is_own:
                setattr(owner, name, method)
            else:
                delattr(owner, name)
