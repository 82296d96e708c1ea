"""Random numbers."""

import torch
import torch.nn.functional as F
from torch import nn

from . import check
from .nets import grads, net, ones


@check
def dropout_bits():
    model = net(nn.Dropout(0.5), nn.Dropout1d(0.2))
    x = torch.randn(6, 8, requires_grad=True)
    model(x).sum().backward()
    return [x.grad, torch.rand(3), *grads(model)]


@check
def dropouts():
    x = torch.ones(2, 4, 4, 4)
    return nn.Dropout2d()(x), nn.Dropout3d()(x), nn.AlphaDropout()(x), nn.FeatureAlphaDropout()(x), torch.rrelu(x - 2, training=True)


@check
def randperm_multinomial():
    p = torch.randperm(10)
    w = torch.rand(10)
    return p, torch.multinomial(w, 4), torch.normal(w, 1.0), torch.randint(0, 9, (3,))


@check
def random_in_place():
    x = torch.zeros(6) + 1
    out = []
    for fill in ("uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "bernoulli_", "random_"):
        getattr(x, fill)()
        out.append(x * 2)
    return [*out, x.geometric_(0.3), torch.empty(3).bernoulli_(torch.ones(3) * 0.5)]


@check
def random_of_other_values():
    w = torch.rand(6) + 0.1
    gamma = torch._standard_gamma(w)
    return torch.bernoulli(w / 2), torch.poisson(w), gamma, torch.binomial(w.ceil() * 3, w / 2), torch.rand_like(w), torch.randn_like(gamma)


@check
def own_generators():
    a, b = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    x = [torch.rand(2, generator=a), torch.rand(2, generator=b), torch.rand(2, generator=a)]
    c = torch.Generator()
    c.set_state(a.get_state())
    y = torch.randn(2, generator=a), torch.randn(2, generator=c)
    del a
    return [*x, *y, torch.rand(2), torch.empty(2).normal_(generator=b), torch.randperm(4, generator=c)]


@check
def seeds_in_between():
    x = torch.rand(4) + 1
    torch.manual_seed(9)
    y = torch.rand(4) * x
    state = torch.get_rng_state()
    z = torch.rand(4) + 1
    torch.set_rng_state(state)
    with torch.random.fork_rng():
        u = torch.rand(4) * 2
        torch.manual_seed(1)
    return x, y, z, u, torch.rand(4), torch.initial_seed()


@check
def distributions():
    d = torch.distributions
    mean = torch.zeros(3, requires_grad=True)
    x = d.Normal(mean, 1.0).rsample()
    kinds = (d.Gamma(1.0, 2.0), d.Beta(1.0, 2.0), d.Categorical(torch.ones(4)), d.Dirichlet(torch.ones(3)), d.StudentT(3.0))
    spread = d.MultivariateNormal(mean, torch.eye(3))
    loss = spread.log_prob(x) + d.kl_divergence(d.Normal(mean, 1.0), d.Normal(1.0, 2.0)).sum()
    loss.backward()
    return [x, loss, mean.grad, *(k.sample() for k in kinds), F.gumbel_softmax(torch.ones(4), hard=True)]


@check
def masks_are_used_again_in_backward():
    w = torch.ones(16, requires_grad=True)
    kept = []
    for i in range(4):
        y = F.dropout(w * i, 0.5)
        (y * torch.rand(16)).sum().backward()
        kept.append(y)
    return [w.grad, *kept]


@check
def random_choice_by_value():
    x = torch.rand(8) + 1
    for _ in range(6):
        x = x * 2 if torch.rand(()) > 0.5 else x[torch.randperm(8)] + torch.randn(())
    return (x,)
