"""Call a function, but not for ever: after so many lines of Python it is stopped."""

import sys
from collections.abc import Callable
from typing import Any


class TooManyLines(BaseException):
    """The function has run more lines than it may. Not an Exception: an `except Exception` in a loop can't hold it."""


def call_within(lines: int, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """The function's result; TooManyLines once it and what it calls have run that many lines of Python.

    Lines are counted, not seconds: a slow machine can't fail a right answer. The debugger's or a coverage tool's own
    tracing is put back afterwards. A loop inside one C call (`sum` over an endless iterator), and one that catches
    everything with a bare `except`, are not stopped: for those there is the notebook's stop button.
    """
    left = lines

    def trace(frame, event, arg):
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                raise TooManyLines(f"{lines} lines")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return function(*args, **kwargs)
    finally:
        sys.settrace(before)
