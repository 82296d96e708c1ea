"""Compares the answers of `remat.suggest` with runs, and tests that `suggest` changes nothing."""

import copy
import re

import models
import pytest
import torch
import torch.nn.functional as F
from bits import bits
from torch import nn

import remat


def state(training):
    """All that a step changes in plain PyTorch."""
    return bits([training.model.state_dict(), training.optimizer.state_dict(), torch.get_rng_state()])


@pytest.mark.parametrize("name", models.MODELS)
def test_bytes_are_those_of_a_run(name):
    training = models.Training(name)
    said = remat.suggest(training.step)
    with remat.budget("1GiB") as budget:
        for _ in range(3):
            training.step()
    assert said.peak_bytes == pytest.approx(budget.stats().peak_bytes, rel=0.05)
    assert said.ops == pytest.approx(budget.stats().ops, rel=0.05)


@pytest.mark.parametrize("name", ["cnn", "mlp", "gpt", "encoder"])
def test_a_run_passes_where_it_says_so(name):
    said = remat.suggest(models.Training(name).step)
    row = min((row for row in said.rows if row.slowdown is not None), key=lambda row: abs(row.budget_bytes / said.peak_bytes - 0.6))
    training = models.Training(name)
    with remat.budget(row.budget_bytes) as budget:
        for done in range(20):
            # The first steps of a run are not known yet.
            if done == 16:
                before = budget.stats()
            training.step()
    stats = budget.stats()
    assert stats.peak_bytes <= row.budget_bytes
    again = (stats.recompute_cost - before.recompute_cost) / (stats.base_cost - before.base_cost)
    assert again == pytest.approx(row.slowdown - 1, rel=0.1, abs=0.01)


@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize("steps", [0, 2])
def test_training_goes_on_with_the_same_bits(name, steps):
    plain, asked = models.Training(name), models.Training(name)
    for training in plain, asked:
        torch.manual_seed(7)
        for _ in range(steps):
            training.step()
    before = state(asked)
    grads = [p.grad is None for p in asked.model.parameters()]
    remat.suggest(asked.step)
    assert state(asked) == before
    if steps == 0:
        assert [p.grad is None for p in asked.model.parameters()] == grads
    asked.losses = asked.losses[:steps]
    for training in plain, asked:
        torch.manual_seed(8)
        training.step()
    assert state(asked) == state(plain)
    assert asked.losses == plain.losses


@pytest.mark.parametrize("name", ["cnn", "mlp", "gpt"])
def test_a_model_without_memory(name):
    """A model and its data on the device `meta` take about the bytes of those on the CPU. Some kernels differ."""
    training, without = models.Training(name), models.Training(name)
    without.model.to("meta")
    without.data = [(x.to("meta"), y.to("meta")) for x, y in without.data]

    def step():
        with torch.device("meta"):
            without.step()

    said = remat.suggest(step)
    assert said.peak_bytes == pytest.approx(remat.suggest(training.step).peak_bytes, rel=0.1)


def test_a_large_model_takes_no_memory():
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(1 << 15, 1 << 15, bias=False) for _ in range(8)))
    said = remat.suggest(lambda: model(torch.empty(8, 1 << 15, device="meta")).sum().backward(), "24GiB")
    assert said.peak_bytes > 64 << 30
    assert next(row for row in said.rows if row.budget_bytes == 24 << 30).slowdown is None


def test_budgets_of_ones_own():
    def step():
        x = torch.ones(1 << 14, requires_grad=True)
        for _ in range(20):
            x = x.sin()
        x.sum().backward()

    said = remat.suggest(step, ["1GiB", 1 << 20, 100])
    slowdowns = {row.budget_bytes: row.slowdown for row in said.rows}
    assert slowdowns[1 << 30] == 1.0 and 1.0 < slowdowns[1 << 20] < 2.0 and slowdowns[100] is None
    assert [row.budget_bytes for row in said.rows] == sorted(slowdowns, reverse=True)
    assert said.smallest_bytes == min(size for size, slowdown in slowdowns.items() if slowdown)
    text = str(said)
    assert "without a limit" in text and "smallest that passes" in text and "1.00 GiB" in text, text


def test_values_that_are_known_are_computed():
    """Lengths and counts that depend on no unknown value determine sizes as in a run."""
    lengths = torch.tensor([3, 5, 2])
    seen = []

    def step():
        x = torch.randn(3, 8, 4, requires_grad=True)
        mask = torch.arange(8)[None] < lengths[:, None]
        seen.append(int(mask.sum()))
        count = torch.zeros(())
        for _ in range(3):
            count += 1
        seen.append(count.item())
        picked = x[mask]
        seen.append(tuple(picked.shape))
        seen.append(torch.randperm(100_000).tolist()[0] < 100_000)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        seen.append(packed.batch_sizes.tolist())
        (picked.exp().sum() + packed.data.sum()).backward()

    said = remat.suggest(step, steps=1)
    assert seen == [10, 3.0, (10, 4), True, [3, 3, 2, 1, 1]]
    assert not said.assumed


def test_values_that_are_not_known():
    seen = []

    def step():
        x = torch.randn(300, 100, requires_grad=True)
        y = x.exp()
        seen.append((y.sum().item(), int(y.argmax()), bool(torch.isnan(y).any()), f"{y.mean():.2f}", repr(y)))
        seen.append((tuple(y.nonzero().shape), tuple(y[y > 1].shape), tuple(torch.unique(y).shape)))
        y[y > 1].sum().backward()

    said = remat.suggest(step, steps=1)
    assert seen[0][:4] == (1.0, 1, False, "1.00") and "without values" in seen[0][4]
    assert seen[1] == ((30_000, 2), (30_000,), (30_000,))
    assert {"aten::_local_scalar_dense", "aten::nonzero", "aten::index.Tensor", "aten::_unique2"} <= set(said.assumed)
    assert "assumed" in str(said)


def test_readers_of_values_get_an_error():
    def step():
        with pytest.raises(RuntimeError, match="no values"):
            torch.randn(300, 300).numpy()
        with pytest.raises(RuntimeError, match="no values"):
            torch.randn(300, 300).tolist()
        torch.randn(3)

    remat.suggest(step)


def test_tensors_that_a_step_leaves_have_no_values():
    left = []
    remat.suggest(lambda: left.append(torch.randn(300, 300) * 2), steps=1)
    with pytest.raises(RuntimeError, match="no values"):
        left[0].numpy()
    with remat.budget("1GiB"), pytest.raises(RuntimeError, match="no values"):
        left[0] + 1


def test_writes_of_a_step_are_undone():
    large, small = torch.ones(300, 300), torch.ones(4)
    count = torch.zeros((), dtype=torch.int64)
    norm = nn.BatchNorm1d(4)
    before = copy.deepcopy(norm.state_dict())

    def step():
        large.mul_(2).add_(torch.randn(300, 300))
        small.mul_(3)
        count.add_(1)
        norm(torch.ones(8, 4).requires_grad_()).sum().backward()

    remat.suggest(step)
    assert large.eq(1).all() and small.eq(1).all() and count == 0
    assert bits(norm.state_dict()) == bits(before) and norm.weight.grad is None


def test_a_step_that_raises():
    training = models.Training("mlp")
    before = state(training)

    def step():
        training.step()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        remat.suggest(step)
    assert state(training) == before
    with remat.budget("1GiB"):
        training.step()


def test_an_op_that_fails_says_so():
    with pytest.raises(RuntimeError, match="300, 300"):
        remat.suggest(lambda: torch.randn(300, 300) @ torch.randn(200, 300))


def test_an_op_without_known_sizes():
    with torch.library._scoped_library("suggest_test", "DEF") as library:
        library.define("odd(Tensor x) -> Tensor")
        library.impl("odd", lambda x: x.clone(), "CPU")
        with pytest.raises(RuntimeError, match="register_fake"):
            remat.suggest(lambda: torch.ops.suggest_test.odd(torch.randn(300, 300)))


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"steps": 0}, ValueError, "steps"),
        ({"size": "40%"}, ValueError, "share"),
        ({"size": "much"}, ValueError, "budget"),
        ({"policy": "none such"}, ValueError, "policy"),
        ({"size": [[1]]}, TypeError, "budget"),
        ({"device": "mps"}, ValueError, "device"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    steps = []
    with pytest.raises(error, match=text):
        remat.suggest(lambda: steps.append(torch.randn(10)), **arguments)
    assert not steps


def test_a_step_without_ops():
    with pytest.raises(ValueError, match="no operator"):
        remat.suggest(lambda: None)


def test_within_a_budget():
    with remat.budget("1GiB"), pytest.raises(RuntimeError, match="another budget"):
        remat.suggest(lambda: torch.randn(10))


def test_loss_scaling():
    """A step with `GradScaler` is not skipped, because nothing says that a gradient is infinite."""
    model = nn.Linear(300, 300)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    made = []

    def step():
        scaler = torch.amp.GradScaler("cpu")
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.mse_loss(model(torch.randn(300, 300)), torch.randn(300, 300))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        made.append(len(optimizer.state))

    remat.suggest(step, steps=1)
    assert made == [2] and not optimizer.state


def test_text_of_sizes():
    said = remat.suggest(lambda: torch.randn(1 << 18).requires_grad_().exp().sum().backward())
    assert re.search(r"^\d+\.\d\d MiB without a limit, in 3 steps of \d+ ops$", str(said).splitlines()[0])
