"""Operators in which other processes take part: they run once, also under stress."""

import contextlib
import os

import pytest
import torch
import torch.distributed as dist
from apart import together
from bits import bits
from torch.distributed import _functional_collectives as functional

import remat

RANKS = 2


def reduced_gradients(rank):
    model = torch.nn.Linear(4, 4)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 4), rank + step + 1.0)).tanh().sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    return list(model.parameters())


def reduced_value(rank):
    x = torch.full((8,), rank + 1.0).exp()
    before = x.sin()
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    return x, before, x * before


def gathered(rank):
    x = torch.arange(4.0) + rank
    parts = [torch.zeros(4).exp() for _ in range(RANKS)]
    dist.all_gather(parts, x * 2)
    whole = torch.zeros(4 * RANKS) + 1
    dist.all_gather_into_tensor(whole, x.cos())
    return *parts, whole, sum(parts), whole.sin()


def scattered(rank):
    part = torch.zeros(4) + 1
    dist.scatter(part, [torch.full((4,), 3.0 + i).sin() for i in range(RANKS)] if rank == 0 else None)
    parts = [torch.zeros(4) + i for i in range(RANKS)] if rank == 0 else None
    dist.gather(part * 2, parts)
    return part, part.exp(), *(parts or [])


def sent(rank):
    x = (torch.arange(4.0) + rank).exp()
    y = torch.zeros(4) + 1
    if rank == 0:
        dist.send(x, 1)
        dist.recv(y, 1)
    else:
        dist.recv(y, 0)
        dist.send(x, 0)
    return x, y, x - y


def waited_for(rank):
    x = torch.full((1 << 12,), rank + 1.0).exp()
    work = dist.all_reduce(x, async_op=True)
    # Other work meanwhile, whose values push others out of memory.
    others = [torch.ones(1 << 12).mul(i).exp() for i in range(4)]
    work.wait()
    return x, x.sin(), sum(others)


def functional_collectives(rank):
    x = torch.full((4,), rank + 1.0).exp()
    y = functional.all_reduce(x, "sum", dist.group.WORLD)
    z = functional.all_gather_tensor(x.cos(), 0, dist.group.WORLD)
    return x, y.sin(), z.exp(), y + 1


def objects(rank):
    found = [None] * RANKS
    dist.all_gather_object(found, {"rank": rank})
    dist.barrier()
    return found


PROGRAMS = [reduced_gradients, reduced_value, gathered, scattered, sent, waited_for, functional_collectives, objects]


@pytest.mark.skipif(not dist.is_available(), reason="PyTorch is built without torch.distributed")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("how", ["calm", "stress"])
def test_same_bits(program, how, tmp_path):
    def rank(number):
        # The name of the machine need not have an address.
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=number, world_size=RANKS)
        out = []
        for budget in (None, remat.budget("1GiB", device="cpu")):
            with budget or contextlib.nullcontext():
                torch.manual_seed(number)
                if budget:
                    budget._session.stress(how == "stress")
                out.append(program(number))
        dist.destroy_process_group()
        plain, governed = map(bits, out)
        assert plain == governed

    together([lambda number=number: rank(number) for number in range(RANKS)])
