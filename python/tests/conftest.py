"""Options of the tests, and one thread for each op."""

import pytest
import torch

import remat


def pytest_addoption(parser):
    parser.addoption("--programs", type=int, default=30, help="number of random programs")
    parser.addoption("--first-seed", type=int, default=0, help="seed of the first random program")


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("first_seed")
        metafunc.parametrize("seed", range(first, first + metafunc.config.getoption("programs")))


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
    # PyTorch imports its compiler at the first budget: once here, not in each forked process.
    with remat.budget("1GiB"):
        pass
