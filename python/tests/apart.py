"""Runs a function in a forked process, so that a crash ends only one test."""

import faulthandler
import os
import pickle
import signal
import traceback

SECONDS = 60


def apart(function, seconds=SECONDS):
    """Returns the function's result, and raises an AssertionError if the function fails or the process dies.

    A process that takes more than ``seconds`` dies of SIGALRM.
    """
    return together([function], seconds)[0]


def together(functions, seconds=SECONDS):
    """Results of functions that run at the same time, each in a process of its own; otherwise as ``apart``."""
    return [_answer(*child) for child in [_start(function, seconds) for function in functions]]


def _start(function, seconds):
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reader)
        # A process that hangs shows where, and dies.
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(seconds)
        try:
            answer = True, function()
        except BaseException:
            answer = False, traceback.format_exc()
        with open(writer, "wb") as f:
            pickle.dump(answer, f)
        os._exit(0)
    os.close(writer)
    return child, reader


def _answer(child, reader):
    with open(reader, "rb") as f:
        told = f.read()
    _, status = os.waitpid(child, 0)
    assert told, f"the process died: status {status}"
    fine, answer = pickle.loads(told)
    assert fine, answer
    return answer
