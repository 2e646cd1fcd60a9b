"""An arm of an experiment: a recipe, and what a run of it needs beside. As text: `LABEL=ARM:key=value,key=value`.

ARM is a function of `grpo_lab.engine.recipes`. A key is a field of `Arm` (lag, lr, preset, ...), a keyword of the
recipe (group_size, eps_low, ...), or `critic.` and a field of `CriticPlan`. A value is a number, true, false, none, or
the name of a concept's function (aggregate=token_mean, kl=k3).
"""

import dataclasses
import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

from grpo_lab import concepts
from grpo_lab.engine import recipes
from grpo_lab.engine.policy import PRESETS
from grpo_lab.engine.recipes import Recipe
from grpo_lab.engine.staleness import lag as constant_lag
from grpo_lab.guard import require, require_count, require_range


@dataclasses.dataclass(frozen=True)
class Arm:
    """A recipe with its lag, learning rate and the other numbers of `start`. `text`: what it was read from."""

    recipe: Recipe
    lag: int = 0
    lr: float = 3e-4
    preset: str = "S"
    batch_size: int = 128
    temperature: float = 1.0
    max_grad_norm: float | None = 1.0
    text: str | None = None

    def __post_init__(self):
        require(isinstance(self.recipe, Recipe), f"an Arm needs a Recipe, grpo() say, not {self.recipe!r}")
        constant_lag(self.lag)
        require_range("lr", self.lr, 0, float("inf"), high_open=True)
        require_count("batch_size", self.batch_size)
        require_range("temperature", self.temperature, 0, float("inf"), low_open=True)
        if self.max_grad_norm is not None:
            require_range("max_grad_norm", self.max_grad_norm, 0, float("inf"), low_open=True)
        require(
            self.preset in PRESETS,
            f"there is no preset {self.preset!r}; the presets are {', '.join(PRESETS)}",
        )
        require(
            self.batch_size % self.recipe.group_size == 0,
            f"a batch of {self.batch_size} answers can't be cut into groups of {self.recipe.group_size}",
        )


ARM_KEYS = [f.name for f in dataclasses.fields(Arm) if f.name not in ("recipe", "text")]


def recipe_makers() -> dict[str, Callable[..., Recipe]]:
    """Every recipe of `grpo_lab.engine.recipes`, by name."""
    return {
        name: function
        for name, function in vars(recipes).items()
        if inspect.isfunction(function) and inspect.signature(function).return_annotation is Recipe
    }


def concept_functions() -> dict[str, Callable]:
    """Every public function of the concepts, by name."""
    found = {}
    for module in pkgutil.iter_modules(concepts.__path__, concepts.__name__ + "."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if inspect.isfunction(value) and value.__module__ == module.name and not name.startswith("_"):
                found[name] = value
    return found


def require_label(label: str) -> None:
    require(
        bool(label) and all(c.isalnum() or c in "_-." for c in label),
        f"the label {label!r} becomes a file name: letters, digits, '_', '-' and '.' only",
    )


def parse_arm(text: str, **defaults) -> tuple[str, Arm]:
    """(label, arm) of one arm as text; `defaults` are keys for it that the text doesn't set.

    Raises: ValueError that names the arm, key or value it doesn't know, and the nearest one that it does.
    """
    head, _, tail = text.partition(":")
    label, _, name = head.rpartition("=")
    makers = recipe_makers()
    require(
        name in makers, f"there is no arm {name!r}{_nearest(name, makers)}; the arms are {', '.join(makers)}"
    )
    label = label or name
    require_label(label)
    named = {}
    for item in filter(None, tail.split(",")):
        key, equals, value = item.partition("=")
        require(bool(equals) and bool(value), f"{item!r} in arm {text!r} should be key=value")
        require(key.strip() not in named, f"{key.strip()} stands twice in arm {text!r}")
        named[key.strip()] = parse_value(value.strip())
    return label, _build(makers[name], {**defaults, **named}, text)


def parse_value(text: str) -> Any:
    """A number, true, false, none, a preset's name, or a concept's function."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text in PRESETS:
        return text
    functions = concept_functions()
    require(
        text in functions,
        f"{text!r} is no number, no preset, and no concept's function{_nearest(text, functions)}",
    )
    return functions[text]


def _build(maker: Callable[..., Recipe], settings: dict[str, Any], text: str) -> Arm:
    # grpo_recomputed hands its keywords on to grpo
    keywords = inspect.signature(maker).parameters
    if any(p.kind is p.VAR_KEYWORD for p in keywords.values()):
        keywords = {**inspect.signature(recipes.grpo).parameters, **keywords}
    own = {k: v for k, v in settings.items() if k in ARM_KEYS}
    rest = {k: v for k, v in settings.items() if k not in ARM_KEYS}
    critic = {k.removeprefix("critic."): rest.pop(k) for k in list(rest) if k.startswith("critic.")}
    known = [k for k, p in keywords.items() if p.kind is p.KEYWORD_ONLY]
    unknown = [k for k in rest if k not in known]
    require(
        not unknown,
        f"arm {text!r} has no key {unknown[:1]}{_nearest(unknown[0], [*ARM_KEYS, *known]) if unknown else ''}; "
        f"it knows {', '.join([*ARM_KEYS, *known])}",
    )
    if critic:
        fields = [f.name for f in dataclasses.fields(recipes.CriticPlan)]
        wrong = [k for k in critic if k not in fields]
        require("critic" in known, f"arm {text!r} has no critic")
        require(not wrong, f"critic has no {wrong}; it has {', '.join(fields)}")
    try:
        if critic:
            rest["critic"] = dataclasses.replace(keywords["critic"].default, **critic)
        return Arm(recipe=maker(**rest), **own, text=text)
    except (ValueError, TypeError) as error:
        raise ValueError(f"arm {text!r}: {error}") from error


def _nearest(word: str, words: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
