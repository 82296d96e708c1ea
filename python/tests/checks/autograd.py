"""Autograd: functions, hooks, graphs and its modes."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from . import check
from .nets import grads, net, ones


@check
def hooks():
    model, seen = net(), []
    model[0].register_forward_hook(lambda m, i, o: seen.append(o.detach()))
    model[2].register_full_backward_hook(lambda m, i, o: seen.append(o[0] * 2))
    x = torch.ones(2, 8, requires_grad=True)
    x.register_hook(lambda g: g * 3)
    model(x).sum().backward()
    return [*seen, x.grad]


@check
def hooks_of_all_kinds():
    model, seen = net(), []
    model[0].register_forward_pre_hook(lambda m, i: (i[0] * 2,))
    model[1].register_forward_hook(lambda m, i, o: o + 1)
    model[2].register_full_backward_pre_hook(lambda m, g: (g[0] * 3,))
    model[2].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.mul_(0.5)))
    x = torch.ones(2, 8, requires_grad=True)
    h = model[:2](x)
    h.retain_grad()
    h.grad_fn.register_prehook(lambda g: (g[0] + 1,))
    h.grad_fn.register_hook(lambda i, o: seen.extend(t.clone() for t in i if t is not None))
    torch.autograd.graph.register_multi_grad_hook([h, x], lambda g: seen.extend(g))
    model[2](h).square().sum().backward()
    return [*seen, h.grad, x.grad, *grads(model)]


@check
def double_backward():
    model = net(nn.Tanh())
    x = torch.ones(2, 8, requires_grad=True)
    (g,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    g.square().sum().backward()
    return [g, x.grad, *grads(model)]


@check
def double_backward_of_convolution():
    layer = nn.Conv2d(2, 3, 3)
    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    (g,) = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
    (g.norm() - 1).square().backward()
    return g, x.grad, layer.weight.grad


@check
def third_derivative():
    x = torch.linspace(0, 1, 5, requires_grad=True)
    y, out = (x**4).sin(), []
    for _ in range(3):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        out.append(y)
    return out


@check
def hessian_and_jacobian():
    f = lambda x: (x.exp() * x).sum()
    x = torch.arange(3.0) / 3
    jacobian = torch.autograd.functional.jacobian(torch.exp, x)
    return torch.autograd.functional.hessian(f, x), jacobian, torch.autograd.functional.vhp(f, x, x)[1]


@check
def retain_graph():
    model = net()
    y = model(ones()).square().sum()
    y.backward(retain_graph=True)
    y.backward()
    return grads(model)


@check
def backward_after_a_freed_graph():
    x = torch.ones(3, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    try:
        y.backward()
    except RuntimeError as error:
        return x.grad, "second time" in str(error)


@check
def custom_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

    x = torch.ones(3, requires_grad=True)
    Cube.apply(x * 2).sum().backward()
    return (x.grad,)


@check
def custom_function_in_place():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            x.mul_(scale)
            ctx.mark_dirty(x)
            ctx.scale, ctx.attribute = scale, x.detach().cos()
            return x

        @staticmethod
        def backward(ctx, g):
            return g * ctx.scale * ctx.attribute, None

    w = torch.arange(3.0, requires_grad=True)
    x = w * 1.5
    y = Twice.apply(x, 2.0)
    (y * y).sum().backward()
    return x, y, w.grad


@check
def custom_function_with_more_outputs():
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(x):
            signs = x > 0
            return x.clamp(min=0), x.clamp(max=0), signs

        @staticmethod
        def setup_context(ctx, inputs, outputs):
            ctx.save_for_backward(*inputs, outputs[0])
            ctx.mark_non_differentiable(outputs[2])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, up, down, _):
            x, clamped = ctx.saved_tensors
            zero = torch.zeros_like(x)
            return (up if up is not None else zero) * clamped + (down if down is not None else zero)

    x = torch.linspace(-1, 1, 5, requires_grad=True)
    up, down, signs = Split.apply(x * 2)
    up.sum().backward()
    return x.grad, down, signs


@check
def custom_function_twice_differentiable():
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.sin()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * x.cos() + y * 0

    x = torch.linspace(0, 1, 4, requires_grad=True)
    (g,) = torch.autograd.grad(Sine.apply(x).sum(), x, create_graph=True)
    g.sum().backward()
    return g, x.grad


@check
def checkpointing():
    model = net(nn.Dropout(0.3))
    torch.manual_seed(1)
    x = torch.ones(2, 8, requires_grad=True)
    checkpoint(model, x, use_reentrant=False).sum().backward()
    checkpoint(model, x, use_reentrant=True).sum().backward()
    return [x.grad, *grads(model)]


@check
def checkpoint_sequences_and_nests():
    model = net(nn.Dropout(0.3), nn.Tanh())
    x = torch.ones(2, 8, requires_grad=True)
    checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
    inner = lambda x: checkpoint(model[2:], x, use_reentrant=False)
    checkpoint(lambda x: inner(model[:2](x)), x, use_reentrant=False).sum().backward()
    return [x.grad, *grads(model)]


@check
def saved_tensors_hooks():
    model = net()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        model(ones()).square().sum().backward()
    return grads(model)


@check
def saved_tensors_elsewhere():
    model = net(nn.Tanh())
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), torch.from_numpy):
        model(ones()).square().sum().backward()
    with torch.autograd.graph.save_on_cpu():
        model(ones()).square().sum().backward()
    return grads(model)


@check
def writes_of_saved_tensors_allowed():
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = x.exp()
        z = y.sin()
        y.mul_(2)
        (z + y).sum().backward()
    return x.grad, y, z


@check
def anomaly_mode():
    model = net()
    with torch.autograd.detect_anomaly(check_nan=True):
        model(ones()).square().sum().backward()
        x = torch.zeros(2, requires_grad=True)
        try:
            (x.sqrt() * 0).sum().backward()
        except RuntimeError as error:
            return [*grads(model), "nan" in str(error)]


@check
def forward_mode():
    import torch.autograd.forward_ad as forward

    model = net(nn.Tanh())
    with forward.dual_level():
        x = forward.make_dual(ones(), ones() * 0.5)
        y = model(x).square()
        primal, tangent = forward.unpack_dual(y)
    return primal, tangent


@check
def gradients_of_inner_tensors():
    x = torch.arange(6.0, requires_grad=True)
    y = x.cos()
    z = (y * y).sum()
    return torch.autograd.grad(z, [x, y], allow_unused=True)


@check
def gradients_by_batch():
    x = torch.arange(3.0, requires_grad=True)
    y = x.exp() * x
    return torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)


@check
def gradient_is_kept_and_replaced():
    model = net()
    model(ones()).sum().backward()
    old = grads(model)
    model(ones()).sum().backward()
    new = grads(model)
    model[0].weight.grad = torch.ones_like(model[0].weight) * 2
    model.requires_grad_(False)
    return [*old, *new, *grads(model)]


@check
def tied_weights():
    table = nn.Embedding(10, 4)
    nn.init.ones_(table.weight)
    head = nn.Linear(4, 10, bias=False)
    head.weight = table.weight
    head(table(torch.tensor([1, 2]))).square().sum().backward()
    return (table.weight.grad,)


@check
def gradcheck():
    layer = lambda x: torch.tanh(x @ x.mT).logsumexp(0)
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    return torch.autograd.gradcheck(layer, x), torch.autograd.gradgradcheck(layer, x)


@check
def graph_is_read():
    model = net()
    y = model(ones())
    saved = y.grad_fn._saved_mat1
    return saved * 2, type(y.grad_fn).__name__, y.grad_fn.next_functions[1][0] is not None


@check
def inference_and_no_grad():
    model = net(nn.BatchNorm1d(16))
    with torch.inference_mode():
        a = model(ones())
        a.add_(1)
    with torch.no_grad():
        b = model(ones()) * a
    with torch.inference_mode(), torch.inference_mode(False):
        c = model(ones())
    return a.clone(), b, c, a.is_inference()


@check
def a_graph_over_many_steps():
    w = torch.ones(3, requires_grad=True)
    h, out = torch.zeros(3), []
    for i in range(12):
        h = torch.tanh(h + w * i)
        if i % 4 == 3:
            h.sum().backward()
            out.append(w.grad.clone())
            h = h.detach()
    return out
