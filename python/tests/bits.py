"""Converts values to plain Python objects with all their bits, to compare them."""

import numpy
import torch


def bits(value):
    """Bytes and form of a tensor; the same for what lists, tuples and dicts hold."""
    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if isinstance(value, numpy.ndarray):
        return "array", str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    return repr(value)


def _of_tensor(tensor):
    form = str(tensor.dtype), str(tensor.layout), tensor.requires_grad
    tensor = tensor.detach()
    if tensor.is_nested:
        return [form, *map(_of_tensor, tensor.unbind())]
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        return [form, tuple(tensor.shape), _of_tensor(tensor.indices()), _of_tensor(tensor.values())]
    if tensor.layout != torch.strided:
        return [form, tuple(tensor.shape), _of_tensor(tensor.to_dense())]
    if tensor.is_quantized:
        return [form, _of_tensor(tensor.int_repr())]
    form = *form, tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg()
    flat = tensor.resolve_conj().resolve_neg().contiguous().view(-1)
    return [form, flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""]


def tensors(value):
    """All tensors within lists, tuples and dicts."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def is_ordinary(tensor):
    """Whether a tensor is ordinary: its storage has the bytes, and no budget counts them."""
    from remat._remat import Session

    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
        return True
    storage = tensor.untyped_storage()
    return Session.state(tensor) is None and (storage.nbytes() == 0 or storage.data_ptr() != 0)
