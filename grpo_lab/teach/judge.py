"""How a check judges: probes with small inputs, right answers, and the answers that give a known mistake away.

A probe is one call with numbers small enough to do by hand. It knows the right answer, and for each usual mistake the
answer that the mistake gives on this very input. So a check names a mistake only if the learner's numbers are exactly
those; otherwise it shows input, answer and right answer, and claims nothing.

Nothing here or in the probes imports a concept: a check that imports the answer judges it by itself.
"""

import inspect
import math
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from grpo_lab.teach.deadline import TooManyLines, call_within

MOST_LINES = 100_000  # a right answer to any probe needs some hundred
NAN = "nan"  # an answer with a nan in it


class Probe(NamedTuple):
    """One question to a learner's function.

    args, kwargs   what it is called with
    right          the right answer: numbers, nested as the result's shape; a dict of names to numbers
    tells          hint -> the wrong answer that the mistake gives here (numbers, NAN), or a function of (answer,
                   right) that recognises it
    slope          None: the result itself is asked for. A number: the gradient of the result's sum in that argument
    pick           with slope: the gradient of this one entry of the result, instead of the sum
    about          said where the answer is wrong and no mistake is recognised
    within         largest distance that counts as equal, relative to the largest right number
    """

    args: Sequence[Any]
    right: Any
    tells: dict[str, Any] = {}  # noqa: RUF012  never changed
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    slope: int | None = None
    pick: tuple[int, ...] | None = None
    about: str = ""
    within: float = 2e-5


class Finding(NamedTuple):
    """What is wrong: a hint or a symptom in a sentence, the numbers behind it, and whether a mistake was recognised
    (by a sign of it, or by its very numbers)."""

    sentence: str
    numbers: str
    named: bool
    by_numbers: bool = False


def judge(function: Callable, probes: Sequence[Probe]) -> Finding | None:
    """None if the function answers every probe rightly, else what is wrong at the first probe that it missed.

    If no mistake is recognised there, a later probe may still recognise one, but only by its very numbers: a nan or an
    error in a function that is wrong anyway says little.

    Raises: NotImplementedError if the function does.
    """
    first = None
    for probe in probes:
        finding = _ask(function, probe)
        if finding is None:
            continue
        if finding.by_numbers or (first is None and finding.named):
            return finding
        first = first or finding
    return first


def _ask(function: Callable, probe: Probe) -> Finding | None:
    args = [_fresh(argument) for argument in probe.args]
    for number, argument in enumerate(args):
        if isinstance(argument, Tensor) and argument.is_floating_point() and probe.slope is not None:
            # All of them, so that a path which should have been cut shows.
            args[number] = argument.requires_grad_()
    kept = [_fresh(argument) for argument in probe.args]
    try:
        inspect.signature(function).bind(*args, **probe.kwargs)
    except TypeError as error:
        return Finding(
            f"Your function can't be called as asked: {error}. Are all parameters of the exercise still there?",
            "",
            True,
        )
    shown = _call_text(function, probe)
    try:
        answer = call_within(MOST_LINES, function, *args, **probe.kwargs)
    except NotImplementedError:
        raise
    except TooManyLines:
        return Finding(
            f"Your function was stopped: it had run {MOST_LINES:,} lines and was still going. "
            f"Which condition ends your loop?",
            shown,
            True,
        )
    except RecursionError:
        return Finding("Your function calls itself without end. Where should it stop?", shown, True)
    except Exception as error:
        return Finding(f"Your function stopped with an error: {_error_text(function, error)}", shown, True)
    if not all(_same(old, new) for old, new in zip(kept, args, strict=True)):
        return Finding(
            "Your function changed one of its inputs in place. Whoever called it still needs the old numbers: "
            "which operation makes a new tensor instead?",
            shown,
            True,
        )
    if isinstance(probe.right, dict):
        return _judge_dict(answer, probe, shown)
    wrong_kind = _wrong_kind(answer, probe)
    if wrong_kind:
        return Finding(wrong_kind, shown, True)
    if probe.slope is not None:
        return _judge_slope(answer, args[probe.slope], probe, function, shown)
    return _compare(answer.detach(), probe, shown, "")


def _wrong_kind(answer: Any, probe: Probe) -> str:
    """A sentence about a result of the wrong type or shape; empty if it is fine."""
    if answer is None:
        return "Your function returned None. Is the `return` missing?"
    if not isinstance(answer, Tensor):
        kind = type(answer).__name__
        why = " Was .item() or a Python sum used?" if isinstance(answer, int | float) else ""
        return f"Your function returned a {kind}, but a torch tensor is wanted.{why}"
    if answer.dtype == torch.bool or answer.is_complex():
        return f"Your result holds {answer.dtype}, but floating-point numbers are wanted. Where did they get lost?"
    if not answer.is_floating_point():
        return (
            f"Your result holds whole numbers ({answer.dtype}). Where were the digits after the point lost?"
        )
    wanted = tuple(_numbers(probe.right).shape) if probe.slope is None else None
    if wanted is not None and tuple(answer.shape) != wanted:
        return _shape_text(tuple(answer.shape), wanted)
    return ""


def _shape_text(got: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    said = f"Your result has shape {got}, but {wanted} is wanted."
    if got == wanted[::-1] and got != wanted:
        return f"{said} Are rows and columns swapped?"
    if len(got) < len(wanted):
        return f"{said} Over which axis did you sum or average that should have stayed?"
    if math.prod(got) == math.prod(wanted):
        return f"{said} The numbers may be right: does a reshape or a squeeze bring them into that form?"
    return f"{said} Which axis is too long or too short?"


def _judge_dict(answer: Any, probe: Probe, shown: str) -> Finding | None:
    if not isinstance(answer, dict) or set(answer) != set(probe.right):
        got = ", ".join(map(str, answer)) if isinstance(answer, dict) else type(answer).__name__
        names = ", ".join(probe.right)
        return Finding(f"A dict with the names {names} is wanted, and you returned: {got}.", shown, True)
    if not all(isinstance(value, Tensor) and value.shape == () for value in answer.values()):
        return Finding("Each value of the dict should be a tensor with one number, of shape ().", shown, True)
    flat = torch.stack([answer[name].detach().double() for name in probe.right])
    names = " for " + ", ".join(probe.right)
    listed = probe._replace(right=list(probe.right.values()))
    return _compare(flat, listed, shown, names)


def _judge_slope(
    answer: Tensor, argument: Tensor, probe: Probe, function: Callable, shown: str
) -> Finding | None:
    name = _parameter(function, probe.slope)
    slope = None
    if answer.requires_grad:
        target = answer.sum() if probe.pick is None else answer[probe.pick]
        try:
            (slope,) = torch.autograd.grad(target, argument, allow_unused=True)
        except RuntimeError as error:
            return Finding(f"The gradient of your result can't be taken: {error}", shown, True)
    slope = torch.zeros_like(argument) if slope is None else slope
    return _compare(slope, probe, shown, f" for the gradient in {name}")


def _compare(answer: Tensor, probe: Probe, shown: str, of: str) -> Finding | None:
    right = _numbers(probe.right)
    if _close(answer, right, probe.within):
        return None
    digits = 2 if probe.within >= 2e-5 else 6
    numbers = f"{shown}\n    yours{of}: {_text(answer, digits)}\n    right{of}: {_text(right, digits)}"
    for hint, tell in probe.tells.items():
        if _tells(answer, right, tell, probe.within):
            return Finding(hint, numbers, True, not (callable(tell) or isinstance(tell, str)))
    sentence = probe.about or _symptom(answer, right)
    return Finding(sentence, numbers, False)


def _tells(answer: Tensor, right: Tensor, tell: Any, within: float) -> bool:
    if isinstance(tell, str):  # NAN
        return bool(answer.isnan().any()) and not bool(right.isnan().any())
    if callable(tell):
        return bool(tell(answer.double(), right))
    return _close(answer, _numbers(tell), within)


def _symptom(answer: Tensor, right: Tensor) -> str:
    """The most that can be said about a wrong answer without guessing."""
    answer = answer.double()
    if answer.isnan().any() and not right.isnan().any():
        return "There is a nan in your result. What was divided by 0, or multiplied by inf or nan?"
    if _close(answer, -right, 2e-5):
        return "Your numbers have the right size and the wrong sign. What is subtracted from what?"
    kept = right != 0
    factors = answer[kept] / right[kept]
    if len(factors) and _close(answer, right * factors[0], 2e-5):
        return f"Your numbers are the right ones times {float(factors[0]):.3g}. Where does that factor come from?"
    wrong = ~((answer - right).abs() <= 2e-5 * right.abs().amax().clamp(min=1))
    if right.dim() and not wrong.all():
        first = [int(i) for i in wrong.nonzero()[0]]
        return f"{int(wrong.sum())} of {wrong.numel()} numbers differ, the first at index {first}."
    return "Your numbers are not the right ones. Do this example by hand: at which step do you part?"


def _fresh(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.detach().clone()
    if isinstance(argument, list):
        return [_fresh(one) for one in argument]
    return argument


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, Tensor):
        return torch.equal(
            torch.nan_to_num(old.double(), 7.5e9), torch.nan_to_num(new.detach().double(), 7.5e9)
        )
    if isinstance(old, list):
        return all(_same(a, b) for a, b in zip(old, new, strict=True))
    return True


def _numbers(values: Any) -> Tensor:
    return values.double() if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.float64)


def _close(answer: Tensor, right: Tensor, within: float) -> bool:
    if answer.shape != right.shape:
        return False
    answer = answer.double()
    if right.numel() == 0:
        return True
    equal_inf = answer.isinf() & right.isinf() & (answer.sign() == right.sign())
    finite = right[right.isfinite()].abs()
    scale = float(finite.amax()) if len(finite) else 0.0
    return bool((((answer - right).abs() <= within * (scale or 1.0)) | equal_inf).all())


def _error_text(function: Callable, error: Exception) -> str:
    """The error, and the line of the learner's own code that it came from."""
    said = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{said}, in the line `{lines[-1]}`." if lines and lines[-1] else f"{said}."


def _parameter(function: Callable, number: int) -> str:
    return list(inspect.signature(function).parameters)[number]


def _call_text(function: Callable, probe: Probe) -> str:
    names = list(inspect.signature(function).parameters)
    parts = [f"{name} = {_text(value, 2)}" for name, value in zip(names, probe.args, strict=False)]
    parts += [f"{name} = {value}" for name, value in probe.kwargs.items()]
    return "    with " + "\n         ".join(parts)


def _text(value: Any, digits: int) -> str:
    """Numbers as a reader writes them: 1, 0.67, [[1, 0]]; a mask as True and False; long ones cut."""
    if isinstance(value, Tensor):
        value = value.detach().tolist()
    if isinstance(value, list):
        if len(value) > 16:
            return "[" + ", ".join(_text(one, digits) for one in value[:3]) + f", ... {len(value)} in all]"
        return "[" + ", ".join(_text(one, digits) for one in value) + "]"
    if isinstance(value, float):
        if value != 0 and (abs(value) < 0.01 or abs(value) >= 1e5) and math.isfinite(value):
            return f"{value:.3g}"
        return f"{value:.{max(digits, 3)}f}".rstrip("0").rstrip(".") if math.isfinite(value) else str(value)
    return str(value)
