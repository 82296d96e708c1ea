"""Methods that read or pass on a tensor's bytes past PyTorch's dispatcher: they get resident bytes."""

import contextlib
import functools
import threading

import torch

# They read at once, and nobody keeps a pointer.
_READ = {
    torch.Tensor: ["tolist", "__reduce_ex__"],
    torch.UntypedStorage: ["tolist", "_write_file", "__getitem__", "clone", "cpu", "__reduce__", "__deepcopy__"],
}
# They give a pointer away, by which somebody may write at any time.
_EXPOSE = {
    torch.Tensor: ["numpy", "data_ptr", "const_data_ptr", "__dlpack__", "share_memory_"],
    torch.UntypedStorage: [
        "data_ptr",
        "__setitem__",
        "fill_",
        "_share_fd_cpu_",
        "_share_filename_cpu_",
        "share_memory_",
    ],
}

# They choose another algorithm under any dispatch mode of PyTorch's, and so give other bits. They run without the
# budget, and their results are leaves.
_WHOLE = [
    (torch.linalg, ["eigvalsh", "svdvals", "cond", "matrix_norm", "matrix_rank", "norm"]),
    (torch, ["norm", "nuclear_norm", "frobenius_norm"]),
]


_state = threading.local()


@contextlib.contextmanager
def reading():
    """Pointers that are given away within are only read from, and not kept.

    ``tensor.data_ptr()`` exposes a tensor: somebody may write to it at any time, so from then on an op that reads it
    keeps a copy, or its results are never evicted. Within ``reading``, tensors are only kept resident.
    """
    was, _state.reads = getattr(_state, "reads", False), True
    try:
        yield
    finally:
        _state.reads = was


def _reads():
    return getattr(_state, "reads", False)


def _reader(method, session):
    @functools.wraps(method)
    def read(self, *args, **kwargs):
        session.keep(self) if _reads() else session.bring(self)
        return method(self, *args, **kwargs)

    return read


def _exposer(method, session):
    @functools.wraps(method)
    def expose(self, *args, **kwargs):
        session.keep(self) if _reads() else session.expose(self)
        return method(self, *args, **kwargs)

    return expose


def _whole(function, session):
    @functools.wraps(function)
    def run(*args, **kwargs):
        if "norm" in function.__name__ and not _is_of_singular_values(args, kwargs):
            return function(*args, **kwargs)
        for leaf in torch.utils._pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                session.keep(leaf)
        with torch._C._DisableTorchDispatch():
            return function(*args, **kwargs)

    return run


def _is_of_singular_values(args, kwargs):
    orders = [*args[1:], *kwargs.values()]
    return any(isinstance(order, (int, float, str)) and order in ("nuc", 2, -2) for order in orders)


def _within_reading(function):
    @functools.wraps(function)
    def read(*args, **kwargs):
        with reading():
            return function(*args, **kwargs)

    return read


@contextlib.contextmanager
def in_place(session):
    """Puts the readers in place."""
    was = []

    def put(owner, name, value):
        was.append((owner, name, owner.__dict__.get(name)))
        setattr(owner, name, value)

    try:
        for owners, wrap in ((_READ, _reader), (_EXPOSE, _exposer)):
            for owner, names in owners.items():
                for name in names:
                    if hasattr(owner, name):
                        put(owner, name, wrap(getattr(owner, name), session))
        for owner, names in _WHOLE:
            for name in names:
                if hasattr(owner, name):
                    put(owner, name, _whole(getattr(owner, name), session))
        put(torch, "save", _within_reading(torch.save))
        yield
    finally:
        for owner, name, value in reversed(was):
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
