"""Optimizers, and what stands around them in a training loop."""

import torch
from torch import nn

from . import check
from .nets import fit, grads, net, ones


@check
def foreach_adam():
    model = net()
    return [*fit(model, torch.optim.Adam(model.parameters(), 0.1, foreach=True)), *model.parameters()]


@check
def fused_adamw():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        model(ones()).square().sum().backward()
        optimizer.step()
    return list(model.parameters())


@check
def adagrad_rmsprop():
    model = net()
    for kind in (torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.NAdam):
        fit(model, kind(model.parameters(), 0.01), 2)
    return list(model.parameters())


@check
def rare_optimizers():
    model = net()
    for kind in (torch.optim.Adadelta, torch.optim.Adamax, torch.optim.ASGD, torch.optim.Rprop, torch.optim.RAdam):
        fit(model, kind(model.parameters(), 0.01), 2)
    return list(model.parameters())


@check
def sgd_with_momentum():
    model = net()
    for options in ({"nesterov": True}, {"dampening": 0.1, "foreach": False}, {"maximize": True}, {"fused": True}):
        fit(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=0.01, **options), 2)
    return list(model.parameters())


@check
def adam_options():
    model = net()
    for options in ({"amsgrad": True}, {"capturable": False, "foreach": False}, {"differentiable": False}):
        fit(model, torch.optim.Adam(model.parameters(), 0.01, **options), 2)
    return list(model.parameters())


@check
def lbfgs():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(ones()).square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return list(model.parameters())


@check
def sparse_adam():
    table = nn.Embedding(10, 4, sparse=True)
    nn.init.ones_(table.weight)
    optimizer = torch.optim.SparseAdam(table.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        table(torch.tensor([1, 2, 2])).square().sum().backward()
        optimizer.step()
    return (table.weight,)


@check
def schedulers():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), torch.tensor(0.1))
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)
    for _ in range(3):
        fit(model, optimizer, 1)
        warm.step()
    return [*model.parameters(), float(optimizer.param_groups[0]["lr"])]


@check
def averaged_models():
    model = net(nn.BatchNorm1d(16))
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        fit(model, optimizer, 1)
        average.update_parameters(model)
    torch.optim.swa_utils.update_bn([ones(), ones() * 2], average)
    return [*average.parameters(), *average.buffers()]


@check
def exponential_average_by_hand():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    shadow = [p.detach().clone() for p in model.parameters()]
    for _ in range(3):
        fit(model, optimizer, 1)
        for s, p in zip(shadow, model.parameters()):
            s.mul_(0.9).add_(p.detach(), alpha=0.1)
    return shadow


@check
def optimizer_in_backward():
    model = net()
    for p in model.parameters():
        optimizer = torch.optim.SGD([p], 0.1)

        def step(p, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()

        p.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        model(ones()).square().sum().backward()
    return list(model.parameters())


@check
def grad_scaler_clip():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(model(ones()).square().sum()).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    return [norm, *model.parameters()]


@check
def clip_by_value_and_vectors():
    model = net()
    model(ones()).square().sum().backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.3)
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 2, model.parameters())
    return [vector, *model.parameters(), *grads(model)]


@check
def data_attribute():
    model = net()
    model(ones()).sum().backward()
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.1)
        p.data = p.data * 2
    model.zero_grad()
    model(ones()).sum().backward()
    return [*model.parameters(), *grads(model)]


@check
def no_grad_update():
    w = torch.ones(4, 4, requires_grad=True)
    for _ in range(3):
        (w @ w).tanh().sum().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    return (w,)


@check
def accumulation():
    model = net()
    for i in range(4):
        (model(ones() * i).square().mean() / 4).backward()
    return grads(model)


@check
def optimizer_state_round_trip():
    model = net()
    first = torch.optim.Adam(model.parameters(), 0.1)
    fit(model, first, 2)
    second = torch.optim.Adam(model.parameters(), 0.1)
    second.load_state_dict(first.state_dict())
    fit(model, second, 2)
    return [*model.parameters(), *(t for s in second.state.values() for t in s.values())]
