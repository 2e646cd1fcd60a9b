"""A small made-up chapter that breaks no rule, for tests that break them one by one."""

import ast
from typing import Any

import nbformat

from tools import solutions
from tools.chapters import skeleton

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
GOOD = f'''# %% [markdown]
# # A made-up chapter
#
# Eight answers, three of them right. ![the loop](img/loop.png)

# %% tags=["setup"]
import math

import torch
from IPython.display import HTML
from torch import Tensor

from grpo_lab.concepts import policy_gradient as package

# %% tags=["given"]
def given_policy_gradient(logp_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The book's own words."""
    GIVEN

# %% tags=["exercise"]
def policy_gradient(logp_BT, advantages_BT, mask_BT):
    """Your turn."""
    raise NotImplementedError("yours")

# %% tags=["check"]
policy_gradient = check_policy_gradient(policy_gradient, otherwise=given_policy_gradient)

# %% tags=["demo"]
print(f"mean {{3 / 8:.3f}}")

# %% tags=["train"]
rows = [math.sqrt(step) for step in range(3)]

# %% tags=["plot"]
HTML('<img alt="a line that climbs" src="data:image/png;base64,{PIXEL}">')

# %% [markdown]
# The line climbs from 0 to 1.41.

# %% tags=["widget", "nbval-ignore-output"]
# output not compared: it shows the time of day
"a dial"
'''


def good_source() -> str:
    """The source as text; its given cell is what the package says now."""
    found = solutions.find("policy_gradient")
    return GOOD.replace("GIVEN", "\n    ".join(map(ast.unparse, found.node.body[1:])))


def stored(source: str | None = None) -> Any:
    """The chapter as if executed: counts, and outputs by hand."""
    nb = skeleton(source or good_source())
    new = nbformat.v4.new_output
    for count, cell in enumerate((cell for cell in nb.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
        last = cell.source.splitlines()[-1]
        if last.startswith("print"):
            cell.outputs = [new("stream", name="stdout", text="mean 0.375\n")]
        elif last.startswith("HTML("):
            data = {"text/plain": "<IPython.core.display.HTML object>", "text/html": last[6:-2]}
            cell.outputs = [new("execute_result", data=data, execution_count=count)]
        elif last == '"a dial"':
            cell.outputs = [new("execute_result", data={"text/plain": "'a dial'"}, execution_count=count)]
    return nb
