"""Readers and writers of bytes that go past PyTorch's dispatcher."""

import copy
import ctypes
import io
import os
import pickle
import tempfile

import numpy
import torch

from . import check
from .nets import grads, net, ones


@check
def read_by_numpy():
    x = torch.arange(4.0) * 2
    y = x.exp()
    return torch.tensor(y.numpy().copy()), torch.tensor(x.tolist()), torch.tensor(float(y[2])), torch.tensor(len(str(x)))


@check
def written_by_numpy():
    x = torch.arange(4.0) * 2
    x.numpy()[:] = 7
    y = x + 1
    x.numpy()[0] = 1
    return x, y


@check
def from_numpy():
    a = numpy.ones(4, dtype="float32")
    x = torch.from_numpy(a)
    y = x * 2
    a[0] = 5
    return x + 1, y


@check
def numpy_functions_of_tensors():
    x = torch.arange(6.0).exp().view(2, 3)
    return numpy.asarray(x).sum(), numpy.sin(x), numpy.array(x), numpy.concatenate([x, x.numpy() * 2]), x * numpy.float32(2), numpy.ones(3) @ x.T.numpy()


@check
def written_from_both_sides():
    a = numpy.zeros(6, dtype="float32")
    x = torch.from_numpy(a)
    out = []
    for i in range(4):
        a[i] = i + 1
        out.append(x.cos() + 1)
        x[i + 1] += 3
        out.append(torch.tensor(a) * x)
        a += 0.5
        x.view(2, 3)[1].mul_(2)
    return [*out, a, x]


@check
def written_by_a_kept_view_of_numpy():
    x = torch.arange(6.0).exp()
    before = x * 2
    view = x[2:].numpy()
    after = x.sin()
    view[0] = 100
    later = x.sin()
    view[1:] = later[3:].numpy()
    return before, after, later, x, view


@check
def numpy_memory_through_views():
    a = numpy.arange(12, dtype="float64").reshape(3, 4)
    x = torch.as_tensor(a)[1:]
    y = torch.frombuffer(bytearray(b"12345678"), dtype=torch.uint8)
    a[2, 2] = -1
    y += 1
    return x.sum(), x.mT @ x, y * 2, bytes(y.numpy())


@check
def dlpack():
    x = torch.arange(4.0).exp()
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    z = torch.from_dlpack(x * 2)
    y += 1
    a = numpy.from_dlpack(z)
    z *= 3
    return x + y, z, a


@check
def values_in_python():
    x = torch.arange(4.0).exp()
    return x.tolist(), x[1].item(), [float(v) for v in x], int(x[2]), bool(x[0]), repr(x), f"{x[1]:.3f} {x}", 1.5 in x, hash(x) == id(x), list(range(x.long()[1]))


@check
def iteration_and_branches():
    x = torch.arange(6.0).cos()
    out = []
    for row in x.view(3, 2):
        if row.sum() > 0:
            out.append(row * 2)
        a, b = row
        out.append(a - b)
    return [*out, max(x), sorted(x.tolist()), min(x, key=abs), sum(x)]


@check
def pointers():
    x = torch.arange(4.0).exp()
    y = x * 2
    buffer = (ctypes.c_float * 4).from_address(x.data_ptr())
    read = list(buffer)
    buffer[0] = 9
    return read, x, y, x * 3, y.data_ptr() != 0, x.untyped_storage().data_ptr() == x.data_ptr()


@check
def storages():
    x = torch.arange(4.0).exp()
    s = x.untyped_storage()
    y = x * 2
    first = s[0], s.nbytes(), bytes(s.tolist())
    s[3] = 0
    z = torch.empty(0).set_(s.clone())
    s.fill_(1)
    more = torch.tensor([], dtype=torch.uint8).set_(s)
    return [*first, y, z, x, more.clone(), x.storage().tolist() if hasattr(x, "storage") else []]


@check
def storages_copied():
    x, y = torch.arange(4.0).exp(), torch.arange(4.0).sin()
    kept = y * 2
    y.untyped_storage().copy_(x.untyped_storage())
    typed = torch.arange(3.0).cos().storage()
    return x, y, kept, list(typed), typed.tolist(), x.untyped_storage().byteswap(torch.float32) is None, x


@check
def deepcopy():
    model = net()
    y = model(ones()).detach()
    n, z = copy.deepcopy(model), copy.deepcopy(y)
    return [*n.parameters(), z, copy.copy(y) + 1]


@check
def copies_of_shared_parts():
    x = torch.arange(6.0).exp()
    pair = [x, x[2:], {"x": x}]
    deep = copy.deepcopy(pair)
    deep[0].mul_(2)
    shallow = copy.copy(x)
    shallow.add_(1)
    model = net()
    model(ones()).sum().backward()
    return pair[:2], deep[:2], deep[2]["x"], shallow, grads(copy.deepcopy(model))


@check
def pickles():
    x = torch.arange(6.0).exp()
    objects = x, x[1:3], torch.nn.Parameter(x * 2), net(), x.to_sparse(), x.bfloat16()
    out = [pickle.loads(pickle.dumps(o, protocol)) for o in objects for protocol in (2, 5)]
    return [list(o.parameters()) if isinstance(o, torch.nn.Module) else o for o in out]


@check
def save_and_load():
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    model(ones()).sum().backward()
    optimizer.step()
    f = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), model(ones()).detach()], f)
    f.seek(0)
    a, _, c = torch.load(f)
    model.load_state_dict({k: v * 2 for k, v in a.items()})
    return [c, *model.parameters(), *pickle.loads(pickle.dumps(model.state_dict())).values()]


@check
def save_and_load_files():
    x = {"a": torch.arange(6.0).exp(), "b": torch.arange(6.0).sin()[2:]}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.pt")
        torch.save(x, path)
        mapped = torch.load(path, mmap=True)
        old = os.path.join(folder, "old.pt")
        torch.save(x, old, _use_new_zipfile_serialization=False)
        x["a"].zero_()
        mapped["b"].add_(1)
        file = os.path.join(folder, "raw")
        (x["b"] + 1).contiguous().numpy().tofile(file)
        raw = torch.from_file(file, size=4)
        return [*mapped.values(), *torch.load(old).values(), *x.values(), raw * 2, raw.clone()]


@check
def state_dict_round_trips():
    model, other = net(torch.nn.BatchNorm1d(16)), net(torch.nn.BatchNorm1d(16))
    model(ones()).sum().backward()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    other.load_state_dict(model.state_dict())
    third = net(torch.nn.BatchNorm1d(16))
    third.load_state_dict(state, assign=True)
    model.load_state_dict(state)
    return [list(m.state_dict().values()) for m in (model, other, third)]


@check
def module_moves():
    model = net()
    model.double().float().to("cpu").share_memory()
    model.apply(lambda m: m.weight.data.mul_(2) if hasattr(m, "weight") else None)
    y = model(ones())
    y.sum().backward()
    model.zero_grad(set_to_none=False)
    return [y, *model.parameters(), *grads(model)]


@check
def shared_memory():
    x = torch.arange(4.0).exp()
    y = x * 2
    x.share_memory_()
    z = x + 1
    x.add_(1)
    return x, y, z, x.is_shared(), y.is_shared()


@check
def array_interfaces():
    x = torch.arange(6.0).exp()
    a = x.__array__()
    b = numpy.lib.stride_tricks.as_strided(x.numpy(), (2, 2), (4, 8))
    x += 1
    c = memoryview(x.numpy())
    return a, b, bytes(c), x.numpy(force=True), x.requires_grad_().numpy(force=True)
