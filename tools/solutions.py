"""The functions of the package as text, found by name: what a `given` cell must equal, and what solves an exercise."""

import ast
import functools
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent / "grpo_lab"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


class Found(NamedTuple):
    module: str
    text: str  # of the whole module
    node: Definition


@functools.lru_cache
def index(package: Path = PACKAGE) -> dict[str, list[Found]]:
    """Every top-level function and class under this folder, by name, those of concepts/ first; teach/ left out."""
    found = {}
    for path in sorted(package.rglob("*.py"), key=lambda path: ("concepts" not in path.parts, path)):
        inside = path.relative_to(package).with_suffix("").parts
        if inside[0] == "teach":
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, Definition):
                found.setdefault(node.name, []).append(Found(".".join((package.name, *inside)), text, node))
    return found


def find(name: str, package: Path = PACKAGE) -> Found | None:
    """The function of this name: the one in concepts/ where there is one, else the only one there is."""
    hits = index(package).get(name, [])
    in_concepts = [hit for hit in hits if ".concepts." in hit.module]
    hits = in_concepts or hits
    if len(hits) > 1:
        raise LookupError(f"{name} is defined in {' and '.join(hit.module for hit in hits)}; which is meant?")
    return hits[0] if hits else None


def shape(node: Definition) -> str:
    """The syntax tree as text, docstring aside; `given_gae` counts as `gae`."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    copy = type(node)(**dict(ast.iter_fields(node)))
    copy.name, copy.body = node.name.removeprefix("given_"), body
    return ast.dump(copy)


def arguments(node: Function) -> str:
    """Names, kinds and defaults of the arguments, annotations aside."""
    copy = ast.parse(ast.unparse(node)).body[0]
    for one in ast.walk(copy.args):
        if isinstance(one, ast.arg):
            one.annotation = None
    return ast.unparse(copy.args)


def _binds(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement of a module gives a meaning to."""
    if isinstance(statement, Definition):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in statement.names]
    return [
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]


def _reads(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def solution(name: str, package: Path = PACKAGE) -> str:
    """A cell that defines this function as the package does, with the imports and helpers that it needs."""
    found = find(name, package)
    if found is None:
        raise LookupError(f"there is no function {name} in the package")
    body = ast.parse(found.text).body
    home = {bound: statement for statement in body for bound in _binds(statement)}
    needed, open_names = set(), [name]
    while open_names:
        statement = home.get(open_names.pop())
        if statement is not None and statement not in needed:
            needed.add(statement)
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                open_names += _reads(statement)
    return "\n".join(ast.unparse(statement) for statement in body if statement in needed) + "\n"
