"""A memory budget for PyTorch.

    import remat

    with remat.budget("6GiB"):
        train()  # any eager training loop, unchanged

All tensors on the budget's device together take no more bytes than the budget. When memory runs short, values
that can be recomputed are evicted, and recomputed when they are needed again. Results have the same bits as
without a budget.
"""

import torch  # noqa: F401  The module below needs PyTorch's libraries.

try:
    from ._remat import TORCH, VERSION, OutOfMemory
except ImportError as error:
    raise ImportError(
        f"remat cannot be used with PyTorch {torch.__version__}: {error}. remat is built against one minor version of "
        "PyTorch; build it again with: pip install --no-build-isolation --force-reinstall --no-deps remat"
    ) from error


def _minor(version):
    return version.split("+")[0].split(".")[:2]


if _minor(TORCH) != _minor(torch.__version__):
    raise ImportError(
        f"remat was built against PyTorch {TORCH}, but this is PyTorch {torch.__version__}; build it again with: "
        "pip install --no-build-isolation --force-reinstall --no-deps remat"
    )

from ._budget import Stats, budget  # noqa: E402
from ._readers import reading  # noqa: E402
from ._suggest import Suggestion, suggest  # noqa: E402

__version__ = VERSION
__all__ = ["OutOfMemory", "Stats", "Suggestion", "__version__", "budget", "reading", "suggest"]
