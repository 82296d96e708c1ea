"""Exceptions in the middle of a step, and going on after them."""

import gc
import weakref

import torch

from . import check
from .nets import fit, grads, net, ones


def raised(function):
    try:
        function()
    except BaseException as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return "nothing"


@check
def exception_inside():
    x = torch.ones(3) * 2
    try:
        x @ torch.ones(4)
    except RuntimeError:
        pass
    return (x + 1,)


@check
def texts_of_errors():
    x = torch.ones(3, 4).exp()
    return [
        raised(lambda: x @ x),
        raised(lambda: x + torch.ones(5)),
        raised(lambda: x[7]),
        raised(lambda: x.view(5)),
        raised(lambda: x.index_select(0, torch.tensor([9]))),
        raised(lambda: torch.linalg.cholesky(-torch.eye(3))),
        raised(lambda: torch.nn.functional.cross_entropy(x, torch.tensor([0, 9, 1]))),
        raised(lambda: x.sum().backward()),
        raised(lambda: x.add_(torch.ones(2, 3, 4))),
        raised(lambda: torch.zeros(2, dtype=torch.long).div_(2)),
        x,
    ]


@check
def failed_write_keeps_the_value():
    x = torch.arange(4.0).exp()
    y = x * 2
    errors = [
        raised(lambda: x.add_(torch.ones(3))),
        raised(lambda: x.copy_(torch.ones(3))),
        raised(lambda: torch.mul(x, torch.ones(3), out=x)),
        raised(lambda: x.index_copy_(0, torch.tensor([9]), torch.ones(1))),
    ]
    x.add_(1)
    return [*errors, x, y]


@check
def exception_in_a_forward_pass():
    class Fails(torch.nn.Module):
        def forward(self, x):
            if x.sum() > 0 and self.training:
                raise ValueError("no")
            return x

    model = net(Fails())
    seen = [raised(lambda: model(ones())) for _ in range(2)]
    model.eval()
    return [*seen, *fit(model, torch.optim.SGD(model.parameters(), 0.1)), *model.parameters()]


@check
def exception_in_a_backward_pass():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("no")

    model = net()
    seen = raised(lambda: Fails.apply(model(ones())).sum().backward())
    first = [None if g is None else g.clone() for g in grads(model)]
    model(ones()).sum().backward()
    return [seen, first, *grads(model)]


@check
def exception_in_a_hook():
    model = net()

    def fails(*_):
        raise ValueError("no")

    handle = model[1].register_full_backward_hook(fails)
    seen = raised(lambda: model(ones()).sum().backward())
    handle.remove()
    model.zero_grad()
    model(ones()).sum().backward()
    return [seen, *grads(model)]


@check
def keyboard_interrupt():
    import signal
    import threading

    x = torch.ones(16, 16) * 0.1
    main = threading.main_thread().ident
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    w = x.clone().requires_grad_()
    try:
        while True:
            y = (w @ x).tanh().sum()
            (y * 0).backward()
    except KeyboardInterrupt:
        pass
    timer.join()
    w.grad = None
    (w @ x).tanh().sum().backward()
    return x, w.grad, w * 2


@check
def interrupt_between_two_ops():
    model, seen = net(), []
    model[1].register_forward_hook(lambda *_: seen.append(1) or (_ for _ in ()).throw(KeyboardInterrupt))
    out = raised(lambda: model(ones()))
    model[1]._forward_hooks.clear()
    return [out, len(seen), *fit(model, torch.optim.Adam(model.parameters(), 0.1))]


@check
def traceback_keeps_tensors():
    kept = []

    def deep(x, n):
        y = x.exp()
        if n == 0:
            raise ValueError("no")
        deep(y * 0.1, n - 1)

    try:
        deep(torch.ones(3), 4)
    except ValueError as error:
        frame = error.__traceback__
        while frame:
            kept += [v for k, v in frame.tb_frame.f_locals.items() if k == "y"]
            frame = frame.tb_next
    return [y * 2 for y in kept]


@check
def generators_in_the_middle():
    def values(x):
        for i in range(9):
            x = x.sin() + i
            yield x

    running = values(torch.ones(3).exp())
    first = [next(running) for _ in range(3)]
    running.close()
    whole = list(values(first[0]))
    return first + whole[-2:]


@check
def cycles_are_collected():
    class Node:
        pass

    node = Node()
    node.me, node.x = node, torch.ones(4).exp()
    y = node.x * 2
    gone = weakref.ref(node.x)
    del node
    gc.collect()
    return gone() is None, y + 1


@check
def tensors_come_back_to_life():
    kept = []

    class Saved:
        def __init__(self, x):
            self.x = x

        def __del__(self):
            kept.append(self.x * 2)

    for i in range(3):
        Saved(torch.full((2,), float(i)).exp())
    gc.collect()
    return kept


@check
def long_chain_of_values():
    x = torch.ones(4) * 0.5
    kept = []
    for i in range(300):
        x = x.sin() + 0.5
        if i % 50 == 0:
            kept.append(x)
    return [*kept, x]
