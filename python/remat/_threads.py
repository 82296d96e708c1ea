"""Threads that are started while a budget is on run under the budget."""

import contextlib
import threading


@contextlib.contextmanager
def in_place(mode):
    """Makes threads run under the mode if they are started while the mode is on."""
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
