"""Parts of PyTorch that work on storages by themselves: refused while a budget is on."""

import contextlib
import functools

import torch

_REASON = {
    "DistributedDataParallel": "it copies gradients into buckets of its own",
    "DataParallel": "it moves replicas between devices in threads of its own",
    "FullyShardedDataParallel": "it frees and fills the storages of parameters by itself",
}


def check():
    """Raises if something is on that a budget does not bear."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a CUDA graph is being captured; a budget evicts, which a graph cannot repeat")


def _refuse(name, reason):
    def refuse(*args, **kwargs):
        raise RuntimeError(f"{name} does not work under a remat budget: {reason}; use it without the budget")

    return refuse


@contextlib.contextmanager
def in_place():
    """Puts the refusals in place."""
    import torch.nn.parallel as parallel

    owners = [(parallel.DistributedDataParallel, "__init__"), (parallel.DataParallel, "__init__")]
    with contextlib.suppress(ImportError, AttributeError):
        from torch.distributed.fsdp import FullyShardedDataParallel

        owners.append((FullyShardedDataParallel, "__init__"))
    was = [(owner, name, getattr(owner, name)) for owner, name in owners]
    for owner, name, method in was:
        refuse = _refuse(owner.__name__, _REASON[owner.__name__])
        setattr(owner, name, functools.wraps(method)(refuse))
    begin = torch.cuda.CUDAGraph.capture_begin
    torch.cuda.CUDAGraph.capture_begin = _refuse("A CUDA graph", "a graph cannot repeat evictions")
    try:
        yield
    finally:
        torch.cuda.CUDAGraph.capture_begin = begin
        for owner, name, method in was:
            setattr(owner, name, method)
