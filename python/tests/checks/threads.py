"""Threads and processes."""

import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.utils.data as data

from . import check
from .nets import grads, net, ones


@check
def second_thread():
    model, out = net(), []
    y = model(ones())
    thread = threading.Thread(target=lambda: out.append((y * 2).detach()))
    thread.start()
    thread.join()
    return [*out, y]


@check
def pool_of_threads():
    w = torch.ones(8, 8) * 2

    def work(i):
        x = torch.full((8, 8), float(i))
        for _ in range(5):
            x = (x @ w).tanh() + i
        return x

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(work, range(12)))


@check
def backward_in_threads():
    models = [net() for _ in range(4)]

    def work(model):
        for _ in range(3):
            model(ones()).square().sum().backward()
        return grads(model)

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, models))


@check
def producer_and_consumer():
    items, out = queue.Queue(2), []

    def produce():
        for i in range(6):
            items.put(torch.full((4,), float(i)).exp())
        items.put(None)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    while (x := items.get()) is not None:
        out.append(x.sqrt_() + 1)
    thread.join()
    return out


@check
def threads_write_in_turn():
    x, turn = torch.zeros(4).exp(), threading.Barrier(2)

    def work(me):
        for i in range(6):
            if i % 2 == me:
                x.mul_(1.5).add_(me)
            turn.wait()

    threads = [threading.Thread(target=work, args=(me,)) for me in (0, 1)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return (x,)


@check
def thread_with_an_exception():
    x = torch.ones(3).exp()

    def work():
        x @ torch.ones(4)

    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(work).exception()
        after = pool.submit(lambda: x * 2).result()
    return type(error).__name__, after, x


@check
def subclass_of_thread_and_timer():
    out = []

    class Worker(threading.Thread):
        def run(self):
            out.append(torch.ones(3).exp() * 2)

    worker, timer = Worker(), threading.Timer(0.01, lambda: out.append(torch.ones(2).sin()))
    worker.start()
    worker.join()
    timer.start()
    timer.join()
    return out


@check
def torch_fork_and_wait():
    x = torch.ones(3).exp()
    future = torch.futures.Future()
    threading.Thread(target=lambda: future.set_result(x * 2)).start()
    return future.wait(), x


@check
def data_loader():
    loader = data.DataLoader(data.TensorDataset(torch.arange(8.0) * 2), 3, shuffle=True, pin_memory=False)
    return [x * 2 for (x,) in loader]


@check
def data_loader_workers():
    d = data.TensorDataset(torch.arange(8.0) * 2)
    return [x for (x,) in data.DataLoader(d, 4, num_workers=2)]


@check
def data_loader_workers_that_stay():
    class Squares(data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return {"x": torch.full((2,), float(i)).square(), "i": i}

    loader = data.DataLoader(Squares(), 2, num_workers=1, persistent_workers=True, prefetch_factor=1)
    model = torch.nn.Linear(2, 2)
    out = []
    for _ in range(2):
        for batch in loader:
            model(batch["x"]).sum().backward()
            out.append(batch["x"].add_(1))
    return [*out, *grads(model)]


@check
def iterable_data():
    class Numbers(data.IterableDataset):
        def __iter__(self):
            yield from (torch.rand(2) for _ in range(4))

    splits = data.random_split(data.TensorDataset(torch.arange(8.0).cos()), [3, 5])
    weighted = data.WeightedRandomSampler(torch.ones(8) * 2, 4)
    return [*data.DataLoader(Numbers(), 2), *(x for s in splits for (x,) in s), list(weighted)]


def in_child(function):
    """Bytes that a forked process gives back."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writer, function())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as f:
        out = f.read()
    os.waitpid(child, 0)
    return out


@check
def fork_with_tensors_of_its_own():
    x = torch.ones(3).exp()
    out = in_child(lambda: (torch.arange(3.0).exp() * 2).numpy().tobytes())
    return out, x * 2


@check
def fork_that_reads():
    x = torch.arange(3.0).exp()
    out = in_child(lambda: (x * 2).numpy().tobytes() + x.numpy().tobytes())
    return out, x * 2


@check
def processes():
    context = torch.multiprocessing.get_context("fork")
    items, x = context.SimpleQueue(), torch.ones(3).share_memory_()

    def work(x):
        x.add_(2)
        items.put("done")

    child = context.Process(target=work, args=(x,))
    child.start()
    said = items.get()
    child.join()
    return said, x, x * 2
