"""Checks at the door: each says what was wanted, what came, and how to mend it.

Wrong kind of object or wrong dtype raises TypeError, wrong shape or wrong value raises ValueError. All of them
look at types, shapes and Python numbers only. None reads a tensor's values, so none makes a GPU wait.
"""

import math
from numbers import Integral, Real

import torch
from torch import Tensor


def require(ok: bool, message: str) -> None:
    """Raise ValueError with this message unless ok."""
    if not ok:
        raise ValueError(message)


def require_tensor(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless tensor is a torch tensor."""
    if tensor is None:
        raise TypeError(f"{name} must be a torch tensor, got None. Has it been computed and handed over?")
    if not isinstance(tensor, Tensor):
        kind = type(tensor).__name__
        raise TypeError(f"{name} must be a torch tensor, got {kind}. Try torch.tensor({name}).")


def require_float(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless tensor is a tensor of floating-point numbers."""
    require_tensor(name, tensor)
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must hold floating-point numbers, got {tensor.dtype}. Try {name}.float().")


def require_mask(name: str, mask_BT: Tensor) -> None:
    """Raise TypeError unless the mask is a bool tensor, ValueError unless it has the two axes (B, T)."""
    require_tensor(name, mask_BT)
    if mask_BT.dtype != torch.bool:
        raise TypeError(
            f"{name} must be a bool tensor (True = own token), got {mask_BT.dtype}. Try {name}.bool()."
        )
    require_shape(name, mask_BT, (None, None), "rows, answer columns")


def require_shape(name: str, tensor: Tensor, shape: tuple[int | None, ...], meaning: str) -> None:
    """Raise ValueError unless tensor has this shape; None stands for "any length".

    Args:
        meaning: what the axes are, in order, for the message: "rows, answer columns".
    """
    require_tensor(name, tensor)
    got = tuple(tensor.shape)
    wanted = "(" + ", ".join("any" if length is None else str(length) for length in shape) + ")"
    if len(got) != len(shape):
        raise ValueError(
            f"{name} must have {len(shape)} axes ({meaning}), got {len(got)}: shape {got}. "
            f"Add an axis with unsqueeze, or pick one entry by index."
        )
    for axis, (length, want) in enumerate(zip(got, shape, strict=True)):
        if want is not None and length != want:
            raise ValueError(
                f"{name} must have shape {wanted} ({meaning}), got {got}: axis {axis} is {length}, not {want}. "
                f"Was it cut from another batch, or are two axes swapped?"
            )


def require_same_shape(**tensors: Tensor) -> None:
    """Raise ValueError unless all the named tensors have one shape. Nothing is broadcast silently."""
    for name, tensor in tensors.items():
        require_tensor(name, tensor)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"these tensors must have one shape, got {listed}. {_shape_hint(list(shapes.values()))}"
        )


def _shape_hint(shapes: list[tuple[int, ...]]) -> str:
    """The likeliest cause of a difference in shape, as a sentence."""
    first = shapes[0]
    other = next(shape for shape in shapes if shape != first)
    if len(first) != len(other):
        return "One value a row? Spread it over the columns with x_B.unsqueeze(1).expand_as(mask_BT)."
    if first[:-1] == other[:-1] and 1 in (first[-1], other[-1]):
        return "One value a row? Spread it over the columns with x_B1.expand_as(mask_BT)."
    if first == other[::-1]:
        return "One of them is transposed: rows come first, columns second."
    if first[:-1] == other[:-1] and abs(first[-1] - other[-1]) == 1:
        return "They are one column apart: only token_logprobs shifts, and its result is one column short."
    return "Take all of them from the same rows, and all without the prompt's columns."


def require_range(
    name: str, value: float, low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> None:
    """Raise ValueError unless low <= value <= high; an open end leaves out the bound itself."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a Python number, got {type(value).__name__}. Try {name}.item().")
    above = value > low if low_open else value >= low
    below = value < high if high_open else value <= high
    if not (above and below):  # nan is on neither side, so it is refused too
        left = "(" if low_open or low == -math.inf else "["
        right = ")" if high_open or high == math.inf else "]"
        raise ValueError(
            f"{name} must lie in {left}{low}, {high}{right}, got {value}. Choose a value in between."
        )


def require_count(name: str, value: int, least: int = 1) -> None:
    """Raise TypeError unless value is a whole number, ValueError unless it is at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {type(value).__name__}. Try int({name}).")
    require(value >= least, f"{name} must be at least {least}, got {value}. Choose a larger one.")


def require_groups(name: str, rewards_B: Tensor, group_size: int, *, least: int = 1) -> None:
    """Raise unless rewards_B is one number a row and its rows split into whole groups of group_size.

    Args:
        least: the smallest group that makes sense for the caller. A baseline made of the others needs 2.
    """
    require_float(name, rewards_B)
    require_shape(name, rewards_B, (None,), "one reward a row")
    require_count("group_size", group_size)
    require(
        group_size >= least,
        f"group_size must be at least {least} here, got {group_size}: one answer has no group to be compared "
        f"with. Sample more answers a prompt, or use batch_advantage or a critic.",
    )
    rows = rewards_B.shape[0]
    require(
        rows > 0 and rows % group_size == 0,
        f"{name} has {rows} rows, which do not split into groups of group_size={group_size}. Hand over whole "
        f"groups: answer g of prompt p stands in row p * group_size + g.",
    )
