"""The compiled module: the engine of a budget, and its way into PyTorch's dispatcher."""

from typing import Any, final

TORCH: str
"""Version of PyTorch that this module was built against."""

VERSION: str
"""Version of remat."""

def replays(
    recording: str, budgets: list[str], percents: list[int], *, policy: str, seed: int
) -> tuple[int, list[tuple[int, float | None]]]:
    """Replays a recording in budgets, and in shares of the bytes that it takes without a limit.

    Returns these bytes, and the bytes and the slowdown of each budget; None stands for a run that does not pass.
    """

class OutOfMemory(MemoryError):
    """The budget is too small for what the program needs at once."""

@final
class Session:
    """What runs under one budget."""

    def __new__(
        cls,
        budget: str,
        *,
        policy: str,
        threshold: str | None = None,
        recompute_limit: float | None = None,
        record: str | None = None,
        seed: int = 0,
        measured: bool = False,
        device: str = "cpu",
    ) -> Session:
        """Makes a session that takes no calls yet."""

    def begin(self, mode: Any, device_type: int, index: int) -> None:
        """Takes the calls of threads with this mode from now on."""

    def close(self, restore: bool) -> None:
        """Gives the bytes of all values back to PyTorch. With ``restore``, makes evicted values resident first."""

    def step(self) -> None:
        """Ends a step."""

    def bring(self, tensor: Any) -> None:
        """Makes a tensor resident, for a reader that runs at once."""

    def expose(self, tensor: Any) -> None:
        """Makes a tensor a leaf that somebody outside of PyTorch may write to."""

    def keep(self, tensor: Any) -> None:
        """Makes a tensor a leaf, so that it stays resident."""

    def leave(self, tensor: Any) -> None:
        """Makes a tensor ordinary: the budget counts its bytes again when an op uses them."""

    def bring_all(self) -> None:
        """Makes every value that fits in the budget resident, for a process that is forked next."""

    def keep_all(self) -> None:
        """Makes every value a leaf, because an operator of some computation is about to change."""

    def dry(self) -> None:
        """Begins a dry run, which lasts until `close`: ops compute no values."""

    def guesses(self) -> dict[str, int]:
        """Calls of a dry run that stand on an assumption, by operator."""

    @staticmethod
    def valueless(tensor: Any) -> bool:
        """Whether a dry run has made the tensor, so that it has no values."""

    @staticmethod
    def tainted(tensor: Any) -> bool:
        """Whether somebody outside of PyTorch may write to a tensor."""

    @staticmethod
    def state(tensor: Any) -> str | None:
        """State of a tensor: "leaf", "resident" or "evicted"; None if the budget does not count it."""

    def set_budget(self, budget: str) -> None:
        """Changes the budget."""

    def evict_all(self) -> None:
        """Evicts every value that can be evicted."""

    @staticmethod
    def stress(on: bool) -> None:
        """Evicts everything evictable after each op, for tests."""

    @staticmethod
    def forked() -> None:
        """Tells that this process was forked: its budget belongs to the parent."""

    def label(self, tensor: Any, label: str) -> None:
        """Gives a tensor a name, for error messages. The budget need not count the tensor yet."""

    def once(self) -> dict[str, int]:
        """Counts calls by operator whose sizes were unknown, or that had operands elsewhere."""

    def stats(self) -> dict[str, int | float]:
        """Counters so far: fields of `remat.Stats`."""
