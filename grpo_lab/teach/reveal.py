"""Show a solution: the source of a function, read from its file, under a fold."""

import html
import inspect
from collections.abc import Callable

from grpo_lab.guard import require


class Source:
    """The source of one function, folded away until the reader opens it. As text it is simply the source."""

    def __init__(self, name: str, source: str, summary: str):
        self.name, self.source, self.summary = name, source, summary

    def __repr__(self) -> str:
        return self.source

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        body = html.escape(self.source)
        return {
            "text/html": f"<details><summary>{html.escape(self.summary)}</summary><pre>{body}</pre></details>",
            "text/plain": f"{self.summary} (print it to read it)",
        }


def reveal(function: Callable, *, docstring: bool = False, summary: str | None = None) -> Source:
    """The source of a function under a fold, without its docstring unless asked for. `print` shows it unfolded.

    It is read from where the function is defined, so it can't differ from what runs.

    Raises: TypeError for something that has no Python source; ValueError where its file can't be read.
    """
    function = inspect.unwrap(function) if callable(function) else function
    if not inspect.isfunction(function):
        raise TypeError(
            f"reveal shows a Python function, got {type(function).__name__}. Give it the function itself."
        )
    try:
        source = inspect.cleandoc("\n" + inspect.getsource(function))
    except OSError as error:
        raise ValueError(
            f"the source of {function.__name__} can't be read ({error}). Was it typed in a shell?"
        ) from error
    require(len(source) > 0, f"the source of {function.__name__} is empty.")
    if not docstring:
        source = _without_docstring(source)
    return Source(function.__name__, source, summary or f"Show a solution: {function.__name__}")


def _without_docstring(source: str) -> str:
    """The same text without the lines of the docstring; comments and layout stay."""
    import ast

    definition = ast.parse(source).body[0]
    first = definition.body[0]
    is_text = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    if not is_text or len(definition.body) == 1 or first.lineno == definition.lineno:
        return source
    lines = source.splitlines()
    return "\n".join(lines[: first.lineno - 1] + lines[first.end_lineno :])
