"""Autocast, compiled functions, functional transforms and operators of one's own."""

import functools

import numpy
import torch
from torch import nn

from . import check
from .nets import fit, grads, net, ones


@check
def autocast():
    model = net()
    with torch.autocast("cpu", torch.bfloat16):
        y = model(torch.ones(3, 8))
    y.float().sum().backward()
    return [y, *grads(model)]


@check
def autocast_with_its_cache():
    model = net(nn.LayerNorm(16), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            y = model(ones()) + model(ones() * 2)
            with torch.autocast("cpu", enabled=False):
                loss = y.float().square().mean()
        loss.backward()
        optimizer.step()
    return [loss, *model.parameters()]


@check
def compiled():
    f = torch.compile(lambda x: (x * 2).sin() + 1, backend="eager")
    x = torch.ones(4) * 3
    return f(x), f(x)


@check
def compiled_model():
    model = net()
    whole = torch.compile(model, backend="eager")
    return [*fit(whole, torch.optim.SGD(model.parameters(), 0.1)), *model.parameters()]


@check
def compiled_inductor():
    f = torch.compile(lambda x: (x * 2).sin() + 1)
    x = torch.ones(4) * 3
    return f(x), f(x)


@check
def scripted():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def f(x):
            return (x * 2).sin() + x.sum()

        traced = torch.jit.trace(f, torch.ones(3))
    x = torch.arange(3.0).exp()
    return traced(x), traced(x * 2)


@check
def exported():
    class Model(nn.Module):
        def forward(self, x):
            return x.sin() @ x.mT

    x = torch.ones(2, 3)
    graph = torch.fx.symbolic_trace(Model())
    return graph(x), Model()(x), str(graph.code).count("sin")


@check
def func_and_vmap():
    w = torch.ones(3, 3)
    f = lambda w, x: (w @ x).tanh().sum()
    g = torch.func.grad(f)(w, torch.ones(3))
    h = torch.func.vmap(torch.func.grad(f), (None, 0))(w, torch.ones(2, 3))
    return g, h


@check
def functional_transforms():
    f = lambda x: (x.sin() * x).sum()
    x, v = torch.arange(3.0) / 3, torch.ones(3) * 2
    value, tangent = torch.func.jvp(f, (x,), (v,))
    out, pull = torch.func.vjp(torch.exp, x)
    return value, tangent, out, *pull(v), torch.func.jacrev(torch.exp)(x), torch.func.jacfwd(torch.sin)(x), torch.func.hessian(f)(x)


@check
def functional_calls():
    model = net(nn.BatchNorm1d(16, track_running_stats=False))
    weights = {k: v.detach() * 2 for k, v in model.named_parameters()}
    loss = lambda p, x: torch.func.functional_call(model, p, (x,)).square().sum()
    grads, value = torch.func.grad_and_value(loss)(weights, ones())
    stacked, buffers = torch.func.stack_module_state([net(), net()])
    base = net().to("meta")
    both = torch.func.vmap(lambda p: torch.func.functional_call(base, p, (ones(),)))(stacked)
    return [value, *grads.values(), both, *buffers.values()]


@check
def vmap_with_random_and_in_place():
    def f(x):
        y = x * 2
        y.add_(torch.rand(3))
        return y.cumsum(0)

    x = torch.arange(6.0).view(2, 3)
    vmap = torch.func.vmap
    nested = vmap(vmap(torch.dot, (0, None)), (None, 0))(x, x)
    return vmap(f, randomness="different")(x), vmap(f, randomness="same")(x), nested, vmap(torch.linalg.det)(torch.eye(3).expand(2, 3, 3) * 2)


@check
def gradients_by_sample():
    model = net()
    weights = dict(model.named_parameters())
    loss = lambda p, x: torch.func.functional_call(model, p, (x[None],)).square().sum()
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))({k: v.detach() for k, v in weights.items()}, torch.randn(5, 8))
    return list(each.values())


@check
def functionalized():
    def f(x):
        y = x * 2
        y[0].mul_(3)
        return y + x.add_(1)

    x = torch.arange(4.0).exp()
    return torch.func.functionalize(f)(x), x


@check
def custom_operator():
    @torch.library.custom_op("checks::scaled", mutates_args=())
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * numpy.float32(by))

    import numpy

    scaled.register_fake(lambda x, by: torch.empty_like(x))
    scaled.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]))
    x = torch.arange(3.0).exp().requires_grad_()
    y = scaled(x * 2, 3.0)
    y.sum().backward()
    return y, x.grad, scaled(y.detach(), 0.5)


@check
def custom_operator_by_numpy():
    @torch.library.custom_op("remat_tests::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() ** 3)

    x = torch.arange(8.0).sin()
    y = cube(x)
    z = cube(y.exp())
    more = [x + i for i in range(4)]
    return x, y, z, more, len(str(x)), x.tolist(), numpy.asarray(x) * 2


@check
def custom_operator_that_writes():
    @torch.library.custom_op("checks::bump", mutates_args=("x",))
    def bump(x: torch.Tensor, by: torch.Tensor) -> None:
        x.add_(by)

    x, by = torch.arange(3.0).exp(), torch.ones(3) * 2
    y = x * 2
    bump(x, by)
    z = x.sin()
    bump(x, z)
    return x, y, z


def made_library(name):
    """A library of three operators: a composite one, one that writes, and one with a list of outputs."""
    library = torch.library.Library(name, "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.define("fill(Tensor(a!) x, float value) -> Tensor(a!)")
    library.define("both(Tensor x) -> (Tensor, Tensor[])")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    library.impl("fill", lambda x, value: x.fill_(value), "CPU")
    library.impl("both", lambda x: (x.sin(), [x.cos(), x * 2]), "CPU")
    return library


def called_library(name):
    ops = getattr(torch.ops, name)
    x = torch.arange(3.0).exp()
    y = x * 2
    a, b = ops.both(x)
    return ops.twice(x), ops.fill(x, 4.0), a, *b, y, x * 1


@functools.cache
def lasting_library():
    return made_library("checks_lasting")


@check
def operators_of_a_library():
    lasting_library()
    return called_library("checks_lasting")


@check
def library_is_destroyed():
    library = made_library("checks_short")
    out = called_library("checks_short")
    library._destroy()
    return out


@check
def control_flow_operators():
    from torch._higher_order_ops import cond

    x = torch.arange(3.0).exp()
    y = cond(x.sum() > 1, lambda x: x.sin() + 1, lambda x: x.cos(), (x,))
    return y, x * 2


@check
def profiled():
    from torch.profiler import ProfilerActivity, profile, record_function

    x = torch.ones(4, 4) * 2
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p, record_function("mine"):
        y = (x @ x).exp()
    return y, any("mm" in e.key for e in p.key_averages())


@check
def deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.empty(3).fill_(2).index_add(0, torch.tensor([0, 0]), torch.ones(2))
        return x, torch.empty(4), x.cumsum(0)
    finally:
        torch.use_deterministic_algorithms(False)


@check
def new_settings_of_precision():
    matmul = torch.backends.mkldnn.matmul
    was = matmul.fp32_precision
    out = []
    try:
        for precision in ("bf16", "ieee", "tf32"):
            matmul.fp32_precision = precision
            x = torch.arange(64.0).view(8, 8).sin()
            out.append(x @ x.T)
        # A rerun of the products above has their settings.
        out.append(out[0] + out[1] + out[2])
        out.append(torch.tensor([precision == matmul.fp32_precision for precision in ("bf16", "ieee", "tf32")]))
    finally:
        matmul.fp32_precision = was
    return out


@check
def precision_of_all_backends():
    was = torch.backends.fp32_precision
    try:
        torch.backends.fp32_precision = "tf32"
        x = torch.arange(64.0).view(8, 8).sin()
        y = x @ x.T
    finally:
        torch.backends.fp32_precision = was
    return y, y.exp(), torch.get_float32_matmul_precision()


@check
def denormal_numbers():
    tiny = torch.full((16,), 1e-38)
    try:
        torch.set_flush_denormal(True)
        flushed = tiny * 0.1
    finally:
        torch.set_flush_denormal(False)
    kept = tiny * 0.1
    return flushed, kept, flushed + 1e-38, kept == flushed


@check
def flop_counter():
    from torch.utils.flop_counter import FlopCounterMode

    model = net()
    with FlopCounterMode(display=False) as counter:
        model(ones()).sum().backward()
    return [counter.get_total_flops(), *grads(model)]
