"""What holds for every concept: masks hide, rows stay apart, inputs stay whole, dtypes stay.

The functions are found by their parameters, so a new one is tested from its first day.
"""

import inspect
import math

import pytest
import torch

from tests.concepts.registry import CONCEPTS
from tests.concepts.tools import random_logits

MASK_BT = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, 0, 1]]).bool()
ROWS, COLUMNS = MASK_BT.shape

MASKED = [name for name, (_, f) in CONCEPTS.items() if "mask_BT" in inspect.signature(f).parameters]
ROW_BY_ROW = [
    name
    for name, (concept, _) in CONCEPTS.items()
    if concept in {"policy_gradient", "importance_ratio", "clipped_surrogate", "gae", "value_loss", "kl"}
]
KEYWORDS = {"eps_low": 0.2, "eps_high": 0.28, "length": 5, "group_size": 2, "clip": 0.1}


def _tensors(function, dtype=torch.float64) -> dict[str, torch.Tensor]:
    """A reproducible tensor for each positional parameter, by its suffix."""
    shapes = {"BT": (ROWS, COLUMNS), "BTV": (ROWS, COLUMNS, 3), "BSV": (ROWS, COLUMNS, 3), "B": (ROWS,)}
    tensors = {}
    for seed, (name, parameter) in enumerate(inspect.signature(function).parameters.items()):
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY or name in {"before", "after"}:
            continue
        if name == "mask_BT":
            tensors[name] = MASK_BT.clone()
        elif name == "ids_BS":
            tensors[name] = torch.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) % 3
        elif name in {"kept_BT", "finished_B"}:
            tensors[name] = random_logits(*shapes[name.split("_")[-1]], seed=seed) > 0
        else:
            x = random_logits(*shapes[name.split("_")[-1]], seed=seed).to(dtype)
            tensors[name] = x.exp() if name == "ratio_BT" else x
    return tensors


def _call(name, tensors):
    """The outputs as a dict, whatever the function returns."""
    _, function = CONCEPTS[name]
    wanted = inspect.signature(function).parameters
    result = function(**tensors, **{key: value for key, value in KEYWORDS.items() if key in wanted})
    return result if isinstance(result, dict) else {"": result}


def _call_with_gradients(name, tensors):
    """The outputs, and the gradient of their sum with respect to each input that gets one."""
    tensors = {k: x.detach().clone().requires_grad_(x.is_floating_point()) for k, x in tensors.items()}
    outputs = _call(name, tensors)
    differentiable = [out.sum() for out in outputs.values() if out.requires_grad]
    if differentiable:
        sum(differentiable).backward()
    return outputs, {k: x.grad for k, x in tensors.items() if x.grad is not None}


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("name", MASKED)
def test_whatever_stands_under_the_mask_changes_neither_value_nor_gradient(name, garbage):
    clean = _tensors(CONCEPTS[name][1])
    dirty = {}
    for key, x in clean.items():
        if key == "kept_BT":
            dirty[key] = x ^ ~MASK_BT
        elif key != "mask_BT" and x.dim() >= 2:
            mask = MASK_BT.unsqueeze(-1) if x.dim() == 3 else MASK_BT
            dirty[key] = torch.where(mask, x, garbage)
        else:
            dirty[key] = x
    clean_outputs, clean_grads = _call_with_gradients(name, clean)
    dirty_outputs, dirty_grads = _call_with_gradients(name, dirty)

    for key, output in clean_outputs.items():
        assert torch.equal(dirty_outputs[key], output)
        assert output.isfinite().all()
    assert clean_grads.keys() == dirty_grads.keys()
    for key, grad in clean_grads.items():
        assert torch.equal(dirty_grads[key], grad)
        assert grad.isfinite().all()


@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_a_row_alone_gives_what_it_gives_in_the_batch(name):
    tensors = _tensors(CONCEPTS[name][1])
    together = _call(name, tensors)[""]
    alone = [_call(name, {key: x[b : b + 1] for key, x in tensors.items()})[""] for b in range(ROWS)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(CONCEPTS) - {"parameter_change"}))
def test_inputs_and_the_global_random_state_are_left_alone(name):
    tensors = _tensors(CONCEPTS[name][1])
    before = {key: x.clone() for key, x in tensors.items()}
    state = torch.get_rng_state()
    _call(name, tensors)
    assert torch.equal(torch.get_rng_state(), state)
    for key, x in tensors.items():
        assert torch.equal(x, before[key])


@pytest.mark.parametrize("name", sorted(set(CONCEPTS) - {"parameter_change"}))
def test_float32_stays_float32(name):
    for output in _call(name, _tensors(CONCEPTS[name][1], torch.float32)).values():
        assert output.dtype == torch.float32


def _broken(name, key, replacement):
    tensors = _tensors(CONCEPTS[name][1])
    tensors[key] = replacement(tensors[key])
    return tensors


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_of_numbers_is_refused_with_the_way_to_mend_it(name):
    with pytest.raises(TypeError, match=r"mask_BT must be a bool tensor.*Try mask_BT\.bool\(\)"):
        _call(name, _broken(name, "mask_BT", lambda mask: mask.float()))


@pytest.mark.parametrize("name", sorted(set(MASKED) | set(ROW_BY_ROW)))
def test_tensors_of_different_shape_are_refused_with_both_shapes(name):
    """One column is cut from each input in turn. A concept of the mask alone has nothing to compare it with."""
    tensors = _tensors(CONCEPTS[name][1])
    for key, x in tensors.items():
        if x.dim() >= 2 and len(tensors) > 1:
            with pytest.raises(ValueError, match=r"\(4, 4[,)]"):
                _call(name, _broken(name, key, lambda x: x[:, :-1]))


@pytest.mark.parametrize("name", MASKED)
def test_a_list_instead_of_a_tensor_is_refused(name):
    key = next(iter(_tensors(CONCEPTS[name][1])))
    with pytest.raises(TypeError, match=f"{key} must be a torch tensor, got list"):
        _call(name, _broken(name, key, lambda x: x.tolist()))
