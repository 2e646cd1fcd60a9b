"""Every public function of grpo_lab.concepts, found by looking, so that a new one cannot be forgotten."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable

import grpo_lab.concepts


def _public_functions() -> dict[str, tuple[str, Callable]]:
    """name of the function -> (name of its concept, the function)."""
    found = {}
    for module_info in pkgutil.iter_modules(grpo_lab.concepts.__path__):
        module = importlib.import_module(f"grpo_lab.concepts.{module_info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                found[name] = (module_info.name, function)
    return found


CONCEPTS = _public_functions()
