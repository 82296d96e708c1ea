"""Ordinary programs have the same bits under a budget: calm, under stress, and in little memory."""

import pytest
import torch
from apart import apart
from bits import bits, is_ordinary, tensors
from checks import CHECKS

import remat

# Budgets to try, as shares of the peak without a limit.
SHARES = (0.4, 0.6, 0.8, 1.0)

# Checks that are not run in little memory. They catch exceptions themselves, OutOfMemory among them.
NOT_IN_LITTLE_MEMORY = {
    "assertions_and_metadata",
    "failed_write_keeps_the_value",
    "keyboard_interrupt",
    "state_dict_round_trips",
    "subclass_of_thread_and_timer",
    "texts_of_errors",
    "thread_with_an_exception",
    "torch_fork_and_wait",
}


def plain(check):
    torch.manual_seed(0)
    return bits(check())


def governed(check, size, stress=False):
    """Bits of a check under a budget, and the counters of the budget."""
    torch.manual_seed(0)
    budget = remat.budget(size)
    with budget:
        budget._session.stress(stress)
        out = check()
    assert all(map(is_ordinary, tensors(out))), "a tensor is not ordinary after the budget"
    return bits(out), budget.stats()


def compare(got, want):
    # Shows only the first difference, without the bytes of all others.
    assert type(got) is type(want) and len(got) == len(want)
    for i, (mine, plain) in enumerate(zip(got, want)):
        assert mine == plain, f"value {i}: {mine} instead of {plain}"


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("how", ["calm", "stress"])
def test_same_bits(check, how):
    def both():
        want = plain(check)
        got, _ = governed(check, "1GiB", how == "stress")
        compare(got, want)
        # PyTorch is as before.
        compare(plain(check), want)

    apart(both)


@pytest.mark.parametrize("name", [name for name in CHECKS if name not in NOT_IN_LITTLE_MEMORY])
def test_same_bits_in_little_memory(name):
    check = CHECKS[name]

    def least():
        want = plain(check)
        _, stats = governed(check, "1GiB")
        for share in SHARES:
            size = max(1, int(stats.peak_bytes * share))
            try:
                got, stats = governed(check, size)
            except remat.OutOfMemory:
                assert share < 1, "the peak without a limit does not suffice"
                continue
            compare(got, want)
            assert stats.unknown_calls or stats.peak_bytes <= size
            return

    apart(least)
