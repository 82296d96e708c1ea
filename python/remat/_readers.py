"""Functions that read or hand out a tensor's bytes without PyTorch's dispatcher. Wrappers restore the bytes first."""

import contextlib
import functools
import threading

import torch

# These functions read at once, and keep no pointer.
_READ = [
    (torch.Tensor, ["tolist", "__reduce_ex__"]),
    (torch.UntypedStorage, ["tolist", "_write_file", "__getitem__", "cpu", "__reduce__"]),
]
# These functions print with the budget turned off.
_PRINT = [(torch.Tensor, ["__repr__", "__format__"])]
# These functions return a pointer, through which other code may write at any time.
_EXPOSE = [
    (torch.Tensor, ["numpy", "data_ptr", "const_data_ptr", "__dlpack__"]),
    (torch.UntypedStorage, ["data_ptr", "__setitem__", "fill_"]),
    (torch.utils.dlpack, ["to_dlpack"]),
    (torch, ["to_dlpack"]),
]
# These functions replace the bytes of a storage.
_LEAVE = [
    (torch.UntypedStorage, ["share_memory_", "_share_fd_cpu_", "_share_filename_cpu_", "_share_cuda_"]),
    (torch.UntypedStorage, ["resize_", "pin_memory"]),
    (torch.Tensor, ["share_memory_"]),
]
# Composite operators that read the numbers in an operand directly: all operands but the first stay resident.
_KEEP = [
    (torch, ["tensor_split", "ctc_loss", "quantize_per_channel", "_pad_packed_sequence", "lstm", "gru"]),
    (torch, ["rnn_tanh", "rnn_relu"]),
    (torch.Tensor, ["tensor_split"]),
    (torch._VF, ["_pad_packed_sequence", "lstm", "gru", "rnn_tanh", "rnn_relu"]),
]
# Under any dispatch mode of PyTorch, these functions choose another algorithm, which gives other bits. They
# therefore run without the budget, and their results are leaves.
_WHOLE = [
    (torch.linalg, ["eigvalsh", "svdvals", "cond", "matrix_norm", "matrix_rank", "norm"]),
    (torch, ["norm", "nuclear_norm"]),
]

# Session of the budget that is on.
_session = None
_state = threading.local()


@contextlib.contextmanager
def reading():
    """Declares that code in this block only reads through the pointers that it gets, and does not keep them.

    Without ``reading``, code that calls ``tensor.data_ptr()`` may write to the tensor at any time. From then
    on, an op that reads the tensor keeps a copy, or its results are never evicted. Within ``reading``, the
    tensor only stays resident.
    """
    was, _state.reads = getattr(_state, "reads", False), True
    try:
        yield
    finally:
        _state.reads = was


def _reads():
    return getattr(_state, "reads", False)


def _tensors(arguments):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]


def _read(session, method, first, args, kwargs):
    session.keep(first) if _reads() else session.bring(first)
    return method(first, *args, **kwargs)


def _print(session, method, first, args, kwargs):
    if type(first) not in (torch.Tensor, torch.nn.Parameter):
        return method(first, *args, **kwargs)
    if session.valueless(first):
        if method.__name__ == "__format__" and first.dim() == 0:
            return first.item().__format__(*args)
        return f"tensor(without values, size={tuple(first.shape)}, dtype={first.dtype})"
    session.bring(first)
    with torch._C._DisableTorchDispatch():
        return method(first, *args, **kwargs)


def _expose(session, method, first, args, kwargs):
    session.keep(first) if _reads() else session.expose(first)
    return method(first, *args, **kwargs)


def _leave(session, method, first, args, kwargs):
    session.leave(first)
    # The budget would count the new bytes, and move them to its table, before the storage has them.
    with torch._C._DisableTorchDispatch():
        return method(first, *args, **kwargs)


def _destroy(session, method, library, args, kwargs):
    # Values that an operator of the library has made could not be computed again, or by another kernel.
    session.keep_all()
    return method(library, *args, **kwargs)


def _is_shared(session, method, first, args, kwargs):
    # PyTorch recognizes shared memory by the function that frees it, which the budget's table keeps meanwhile. Memory
    # of other values comes from the budget, and is not shared.
    if session.tainted(first):
        session.leave(first)
    return method(first, *args, **kwargs)


def _keep(session, method, first, args, kwargs):
    for tensor in _tensors((args, kwargs)):
        if not tensor.dtype.is_floating_point or method.__name__ == "quantize_per_channel":
            session.keep(tensor)
    return method(first, *args, **kwargs)


def _whole(session, method, first, args, kwargs):
    orders = [*args, *kwargs.values()]
    is_norm = "norm" in method.__name__
    if is_norm and not any(isinstance(order, (int, float, str)) and order in ("nuc", 2, -2) for order in orders):
        return method(first, *args, **kwargs)
    for tensor in _tensors((first, args, kwargs)):
        session.keep(tensor)
    with torch._C._DisableTorchDispatch():
        return method(first, *args, **kwargs)


def _copy(session, method, first, args, kwargs):
    # A storage copied to a storage.
    session.expose(first)
    for source in args[:1]:
        session.keep(source)
    with torch._C._DisableTorchDispatch():
        return method(first, *args, **kwargs)


def _within_reading(session, method, first, args, kwargs):
    with reading():
        return method(first, *args, **kwargs)


def _put(way, method):
    # A module that is imported while a budget is on may keep this wrapper, as `from torch import save` does.
    @functools.wraps(method)
    def put(first, /, *args, **kwargs):
        if _session is None:
            return method(first, *args, **kwargs)
        return way(_session, method, first, args, kwargs)

    return put


@contextlib.contextmanager
def in_place(session):
    """Installs the wrappers of these functions."""
    global _session
    ways = [
        (_read, _READ),
        (_print, _PRINT),
        (_expose, _EXPOSE),
        (_leave, _LEAVE),
        (_is_shared, [(torch.UntypedStorage, ["is_shared"])]),
        (_keep, _KEEP),
        (_whole, _WHOLE),
        (_copy, [(torch.UntypedStorage, ["copy_"])]),
        (_within_reading, [(torch, ["save"])]),
        (_destroy, [(torch.library.Library, ["_destroy"])]),
    ]
    was = []
    _session = session
    try:
        for way, owners in ways:
            for owner, names in owners:
                for name in names:
                    if hasattr(owner, name):
                        was.append((owner, name, owner.__dict__.get(name)))
                        setattr(owner, name, _put(way, getattr(owner, name)))
        yield
    finally:
        _session = None
        for owner, name, value in reversed(was):
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
