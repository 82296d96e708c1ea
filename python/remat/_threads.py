"""Puts threads that are started while a budget is on under this budget."""

import contextlib
import threading


@contextlib.contextmanager
def in_place(mode):
    """Puts threads that are started while the mode is on under the mode."""
    start = threading.Thread.start

    def governed(self, *args, **kwargs):
        run = self.run

        def under_budget():
            del self.run
            with mode:
                run()

        self.run = under_budget
        return start(self, *args, **kwargs)

    threading.Thread.start = governed
    try:
        yield
    finally:
        threading.Thread.start = start
