"""Ordinary programs of PyTorch, by subject. None of them knows of remat.

Each returns tensors and values. Their bits must not depend on a budget.
"""

import importlib
import pkgutil

CHECKS = {}


def check(function):
    """Registers a program."""
    assert function.__name__ not in CHECKS, function.__name__
    CHECKS[function.__name__] = function
    return function


for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
