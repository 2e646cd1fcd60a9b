"""Two learners who press Run All: one whose every exercise is right, one whose every exercise has a mistake in it.

Both run only what carries the learner's own functions: the cells setup, given, exercise and check, and the train cells
for three steps in all. So a train cell uses no name that a demo, plot or widget cell made.
"""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import nbformat

from tests.concepts.mutants import MUTANTS
from tests.notebooks.few_steps import MOST_STEPS
from tools import rules, solutions
from tools.chapters import TIMEOUT, execute, kernel_environment

ROLES = ("setup", "given", "exercise", "check", "train")
PROBE = "learner-probe"


class Verdict(NamedTuple):
    """Of one check of one function: was the learner's own function handed back, and what was printed."""

    name: str
    kept: bool
    said: str


class Day(NamedTuple):
    verdicts: list[Verdict]
    steps: int  # of training


def right(node: ast.FunctionDef, cell: str) -> str:
    """The exercise as the package solves it."""
    return solutions.solution(node.name)


def mistake_in(name: str) -> str | None:
    """The mistake that the wrong learner makes: the first in the table of mutants."""
    return next(iter(MUTANTS.get(name, {})), None)


def wrong(node: ast.FunctionDef, cell: str) -> str:
    """The exercise with a known mistake; left unwritten where none is known."""
    mistake = mistake_in(node.name)
    if mistake is None:
        return cell
    given = node.args
    words = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    words += [f"{argument.arg}={argument.arg}" for argument in given.kwonlyargs]
    body = ast.parse(f"return _mutants[{node.name!r}][{mistake!r}].function({', '.join(words)})").body
    function = type(node)(**{**dict(ast.iter_fields(node)), "body": body})
    text = ast.unparse(ast.fix_missing_locations(function))
    return f"from tests.concepts.mutants import MUTANTS as _mutants\n\n{text}"


def _probe(source: str) -> Any:
    return nbformat.v4.new_code_cell(source, metadata={"tags": [PROBE]})


def notebook_of(nb: Any, author: Callable[[ast.FunctionDef, str], str]) -> Any:
    """The cells that this learner runs, with probes around each check: is the name still the learner's function?"""
    names = [
        node.name for _, cell in rules.code_cells(nb, "exercise") if (node := rules.exercise_function(cell))
    ]
    trains = sum(1 for _ in rules.code_cells(nb, "train"))
    cells = []
    if trains:
        cells.append(
            _probe(f"from tests.notebooks import few_steps\n_made = few_steps.allow({MOST_STEPS}, {trains})")
        )
    for _, cell in rules.code_cells(nb, *ROLES):
        node = rules.exercise_function(cell) if rules.role(cell) == "exercise" else None
        source = author(node, cell.source) if node else cell.source
        judged = (
            [name for name in rules.checked_names(cell) if name in names]
            if rules.role(cell) == "check"
            else []
        )
        if judged:
            cells.append(_probe(f"_mine = [{', '.join(judged)}]"))
        cells.append(nbformat.v4.new_code_cell(source, metadata={**cell.metadata, "judged": judged}))
        if judged:
            same = f"[a is b for a, b in zip(_mine, [{', '.join(judged)}])]"
            cells.append(_probe(f"print(__import__('json').dumps({same}))"))
    cells.append(_probe(f"print({'_made()' if trains else 0})"))
    return nbformat.v4.new_notebook(cells=cells, metadata=nb.metadata)


def spend_a_day(nb: Any, author: Callable, *, cwd: Path, timeout: float = TIMEOUT) -> Day:
    """Run All; raises CellFailed where it doesn't reach the end."""
    with kernel_environment(GRPO_LAB_FAST="1") as environment:
        done = execute(notebook_of(nb, author), cwd=cwd, environment=environment, timeout=timeout)
    verdicts = []
    for cell, after in zip(done.cells, done.cells[1:], strict=False):
        if judged := cell.metadata.get("judged"):
            said = " ".join(" ".join(map(rules.text_of, cell.outputs)).split())
            kept = json.loads(after.outputs[0].text)
            verdicts += [Verdict(name, own, said) for name, own in zip(judged, kept, strict=True)]
    return Day(verdicts, int(done.cells[-1].outputs[0].text))


def _hints(name: str) -> dict[str, str]:
    return {mistake: " ".join(mutant.hint.split()) for mistake, mutant in MUTANTS.get(name, {}).items()}


def complaints(day: Day, author: Callable) -> list[str]:
    """What the checks got wrong, in words; empty where all is well."""
    found = [f"{day.steps} training steps; {MOST_STEPS} at most"] if day.steps > MOST_STEPS else []
    for name, kept, said in day.verdicts:
        hints, mistake = _hints(name), mistake_in(name)
        if not said:
            found.append(f"the check of {name} says nothing")
        if author is right:
            if not kept:
                found.append(f"the check of {name} turns the package's own function down: {said}")
            found += [
                f"the check of {name} sees the mistake {one} where none is"
                for one in hints
                if hints[one] in said
            ]
        elif kept:
            found.append(f"the check of {name} accepts {mistake or 'an unwritten exercise'}: {said}")
        elif mistake and hints[mistake] not in said:
            found.append(f"the check of {name} turns {mistake} down without naming it: {said}")
    return found
