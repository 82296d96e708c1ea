"""Kinds of tensors: types of elements, layouts and subclasses."""

import torch
import torch.nn.functional as F
from torch import nn

from . import check
from .nets import grads, net, ones


@check
def small_floats():
    out = []
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        model = net(nn.LayerNorm(16)).to(dtype)
        y = model(ones().to(dtype))
        y.square().mean().backward()
        out += [y, *grads(model), (y @ y.mT).softmax(0), y.float(), F.conv1d(y[None], y[:, :, None].transpose(0, 2)[:1].mT)]
    return out


@check
def eight_bit_floats():
    x = torch.linspace(-2, 2, 16)
    return [x.to(dtype).view(torch.uint8) for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)] + [x.to(torch.float8_e5m2).float() * 2]


@check
def integers_and_booleans():
    out = []
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        x = torch.arange(6).to(dtype) * 3
        x += 1
        out += [x, x // 2, x % 4, x.sum(), x.cumsum(0), x > 4, x.to(torch.bool), x.float() / 3, x << 1]
    flags = torch.tensor([True, False]) | torch.tensor([False, False])
    return [*out, flags, flags.sum(), ~flags, flags.any(), torch.arange(3, dtype=torch.int16).view(torch.uint16)]


@check
def conversions():
    x = torch.randn(3, 4).exp()
    return x.to(torch.half), x.double(), x.to("cpu", copy=True), x.type(torch.int32), x.to(x.half()), x.cpu(), x.contiguous(), x.bool()


@check
def sparse_tensors():
    i, v = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4, 5]) * 2
    x = torch.sparse_coo_tensor(i, v, (2, 3))
    dense = torch.ones(3, 2) * 3
    y = (torch.eye(3) * 2).to_sparse()
    return x, x.to_dense(), x @ dense, (x * 2).coalesce().values(), torch.sparse.sum(x, 0), y, torch.sparse.mm(x, y), x.mT


@check
def views_of_sparse_tensors():
    x = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4, 5]) * 2, (2, 3))
    csr = (torch.eye(4) * 2).to_sparse_csr()
    views = x.transpose(0, 1), x.t(), x[1], x.unsqueeze(0), x.detach(), (x * 2).mT, csr.transpose(0, 1), csr[1], csr.detach()
    return *views, *(view.to_dense() * 2 for view in views), x._values(), x._indices()


@check
def compressed_sparse_tensors():
    x = torch.eye(4) * 2
    x[0, 3] = 7
    rows, columns = x.to_sparse_csr(), x.to_sparse_csc()
    return rows.values(), rows.crow_indices(), rows @ torch.ones(4, 2), columns.to_dense(), x.to_sparse_bsr((2, 2)).values() * 2


@check
def gradients_of_sparse_tensors():
    w = torch.ones(3, 2, requires_grad=True)
    v = torch.tensor([3.0, 4], requires_grad=True)
    x = torch.sparse_coo_tensor(torch.tensor([[0, 1], [2, 0]]), v, (2, 3))
    torch.sparse.mm(x, w * 2).sum().backward()
    return w.grad, v.grad


@check
def quantized_tensors():
    x = torch.linspace(-1, 1, 12).view(3, 4)
    q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
    c = torch.quantize_per_channel(x, torch.ones(3) * 0.1, torch.zeros(3, dtype=torch.long), 0, torch.qint8)
    fake = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)
    return q.int_repr(), q.dequantize() * 2, c.dequantize(), F.relu(q).dequantize(), fake, q.view(-1)[2:].dequantize()


@check
def nested_tensors():
    parts = [torch.ones(2, 3) * 2, torch.ones(4, 3) * 3]
    x = torch.nested.nested_tensor(parts)
    y = torch.nested.nested_tensor(parts, layout=torch.jagged)
    views = [*y.unbind(), *(y * 2).unbind(), y.transpose(1, 2).values(), *y.unsqueeze(-1).unbind(), y[1]]
    return [*x.unbind(), *(x * 2).unbind(), *views, (y * 2).sin().values(), torch.nested.to_padded_tensor(x, 0.0)]


@check
def opaque_tensors():
    x = torch.randn(2, 3, 4, 4).exp()
    y = x.to_mkldnn()
    return y.to_dense(), (y + y).to_dense(), y.relu().to_dense() * 2


@check
def tensors_on_meta():
    x = torch.ones(4, 4, device="meta")
    model = net().to("meta")
    y = model(torch.ones(2, 8, device="meta")) + 1
    model.to_empty(device="cpu")
    for p in model.parameters():
        nn.init.constant_(p, 0.5)
    return tuple((x @ x).shape), tuple(y.shape), model(ones())


@check
def fills_of_each_type():
    # One call makes numbers, and the other truth values.
    out = [torch.full((3,), value) for value in (2, False, 3, True, 2.0)]
    was = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        out.append(torch.full((3,), 2.0))
    finally:
        torch.set_default_dtype(was)
    return out


@check
def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.ones(2, 8) * 2
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y = mode.from_tensor(x).exp() @ torch.ones(8, 3)
    return tuple(y.shape), x + 1


@check
def a_subclass():
    class Mine(torch.Tensor):
        pass

    x = (torch.ones(3) * 2).as_subclass(Mine)
    return ((x * 2).as_subclass(torch.Tensor),)


@check
def a_subclass_with_torch_function():
    class Logged(torch.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = (torch.ones(3) * 2).as_subclass(Logged).requires_grad_(False)
    y = torch.add(x, x).exp().sum()
    return y.as_subclass(torch.Tensor), Logged.seen.count("exp")


@check
def a_subclass_with_torch_dispatch():
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            down = lambda x: x.inner if isinstance(x, Wrapped) else x
            up = lambda x: Wrapped(x) if isinstance(x, torch.Tensor) else x
            out = func(*torch.utils._pytree.tree_map(down, args), **torch.utils._pytree.tree_map(down, kwargs or {}))
            return torch.utils._pytree.tree_map(up, out)

    x = Wrapped((torch.ones(3) * 2).requires_grad_())
    y = (x.exp() * x + torch.ones(3)).sum()
    y.backward()
    return y.inner.detach(), x.grad.inner


@check
def a_dispatch_mode():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Doubles(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is torch.ops.aten.sin.default else out

    x = torch.ones(3, requires_grad=True)
    with Doubles():
        y = x.sin().exp()
        y.sum().backward()
    return y, x.grad


@check
def a_function_mode():
    from torch.overrides import TorchFunctionMode

    class Tans(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return (torch.tan if func is torch.sin else func)(*args, **(kwargs or {}))

    with Tans(), torch.device("cpu"):
        return (torch.sin(torch.ones(3) * 2),)


@check
def default_types_and_devices():
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(3) / 3, net()(torch.ones(2, 8))
    finally:
        torch.set_default_dtype(torch.float32)


@check
def parametrizations_and_buffers():
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

    layer = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    layer.register_buffer("seen", torch.zeros(4))
    y = layer(torch.ones(2, 4))
    layer.seen += y.detach().sum(0)
    y.sum().backward()
    return y, layer.seen, layer.weight, *grads(layer)


@check
def lazy_layers():
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3))
    model(torch.ones(2, 2, 5, 5)).square().sum().backward()
    return [*model.parameters(), *grads(model)]


@check
def initializers():
    inits = (nn.init.xavier_uniform_, nn.init.kaiming_normal_, nn.init.orthogonal_, nn.init.trunc_normal_, nn.init.eye_)
    return [init(torch.empty(4, 4)) for init in inits] + [nn.init.sparse_(torch.empty(4, 4), 0.5)]
