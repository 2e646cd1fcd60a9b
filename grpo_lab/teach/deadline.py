"""Call a function, but not for ever: after so many lines of Python it is stopped."""

import sys
from collections.abc import Callable
from typing import Any

STEPS_A_LINE = 20  # of the interpreter, inside one line of Python


class TooManyLines(BaseException):
    """The function has run more lines than it may. Not an Exception: an `except Exception` in a loop can't hold it."""


def call_within(lines: int, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """The function's result; TooManyLines once it and what it calls have run that many lines of Python.

    Lines are counted, not seconds: a slow machine can't fail a right answer. The debugger's or a coverage tool's own
    tracing is put back afterwards. A loop inside one C call (`sum` over an endless iterator), and one that catches
    everything with a bare `except`, are not stopped: for those there is the notebook's stop button.
    """
    left, steps_left = lines, STEPS_A_LINE * lines
    home = getattr(getattr(function, "__code__", None), "co_filename", None)

    def trace(frame, event, arg):
        nonlocal left, steps_left
        if event == "call" and frame.f_code.co_filename == home:
            frame.f_trace_opcodes = True  # `while True: pass` on one line never begins a new line
        elif event == "line":
            left -= 1
        elif event == "opcode":
            steps_left -= 1
        if left < 0 or steps_left < 0:
            raise TooManyLines(f"{lines} lines")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return function(*args, **kwargs)
    finally:
        sys.settrace(before)
