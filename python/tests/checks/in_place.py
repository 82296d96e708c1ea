"""Writes in place."""

import torch
import torch.nn.functional as F

from . import check


@check
def in_place_chain():
    x = torch.randn(5, 5)
    y = x.exp()
    y.relu_().add_(x).clamp_(max=2)
    z = y * y
    y.zero_()
    return x, y, z


@check
def in_place_reads_itself():
    x = torch.randn(5, 5).exp()
    x.mul_(x)
    x += x
    return (x,)


@check
def old_values_are_read_after_a_write():
    x = torch.randn(6).exp()
    kept = []
    for i in range(5):
        kept.append(x * i)
        x.add_(1).sqrt_()
    return [*kept, x]


@check
def in_place_of_all_kinds():
    x = torch.randn(4, 4).abs() + 1
    x.t_().addmm_(x.clone(), x.clone(), beta=0.5)
    x.log_().neg_().fill_diagonal_(0).tril_()
    x.masked_fill_(x < -1, 7).index_fill_(0, torch.tensor([1]), 2)
    x.scatter_(1, torch.tensor([[0], [1], [2], [3]]), 9.0).addcmul_(x, x, value=0.1)
    x.lerp_(torch.ones(4, 4), 0.3).cumsum_(1).unsqueeze_(0).squeeze_(0).pow_(2)
    return (x,)


@check
def swaps_and_copies():
    x, y = torch.randn(4).exp(), torch.randn(4).sin()
    x, y = y, x
    x.copy_(y)
    y.copy_(torch.arange(4))
    z = torch.empty(4, dtype=torch.float64).copy_(x)
    return x, y, z


@check
def in_place_activations():
    w = torch.linspace(-2, 2, 12, requires_grad=True)
    x = w * 1
    y = F.leaky_relu_(F.hardtanh_(F.relu6(x * 3, inplace=True)), 0.1)
    F.dropout(y * 1, 0.5, inplace=True)
    y.sum().backward()
    return y, w.grad


@check
def index_put():
    x = torch.zeros(5, requires_grad=True)
    y = x * 1
    y[torch.tensor([1, 3])] = 2.0
    y.index_add_(0, torch.tensor([0, 0]), torch.ones(2))
    y.square().sum().backward()
    return y, x.grad


@check
def index_put_accumulates():
    x = torch.arange(6.0).sin()
    x.index_put_((torch.tensor([0, 0, 2]),), torch.tensor([1.0, 2.0, 3.0]), accumulate=True)
    x[x > 0.5] = -1
    x[[True, False] * 3] *= 2
    return (x,)


@check
def out_arguments():
    x = torch.ones(4) * 2
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    y = out * 2
    torch.mul(x, 5, out=out)
    return out, y


@check
def out_arguments_that_alias():
    x = torch.randn(4, 4).exp()
    torch.mul(x, 2, out=x)
    torch.cumsum(x, 0, out=x)
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.sort(x, 1, out=(values, indices))
    torch.add(x[0], 1, out=x[1])
    q, r = torch.empty(0), torch.empty(0)
    torch.linalg.qr(x, out=(q, r))
    return x, values, indices, r.abs(), torch.stack([x, x], out=torch.empty(2, 4, 4))


@check
def resize_and_set():
    x = torch.ones(4) * 2
    x.resize_(8)
    x[4:] = 3
    y = torch.ones(2) * 3
    y.set_(x)
    return x + 0, y + 1


@check
def resize_smaller_and_back():
    x = torch.arange(8.0).cos()
    y = x * 2
    x.resize_(3)
    z = x + 1
    x.resize_(8)
    x[3:] = 0
    return x, y, z


@check
def set_to_another_storage():
    x, y = torch.arange(6.0).cos(), torch.arange(6.0).sin()
    x.set_(y.untyped_storage(), 2, (2, 2), (2, 1))
    x.add_(1)
    z = torch.empty(0).set_(y)
    return x, y, z, y.data.set_(x + 1)


@check
def storage_is_resized():
    x = torch.arange(4.0).cos()
    y = x * 2
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(16)
    x.fill_(3)
    return x, y


@check
def saved_tensor_written():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    y.add_(1)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return ("modified by an inplace operation" in str(error),)
    return (False,)


@check
def foreach_in_place():
    xs = [torch.arange(3.0).cos() + i for i in range(3)]
    ys = torch._foreach_mul(xs, 2)
    torch._foreach_add_(xs, ys, alpha=0.5)
    torch._foreach_sqrt_(torch._foreach_abs(xs))
    torch._foreach_lerp_(xs, ys, 0.1)
    return [*xs, *ys, *torch._foreach_norm(xs)]
