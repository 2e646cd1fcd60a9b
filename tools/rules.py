"""What must hold of a chapter, as small functions: a notebook in, problems out.

`make chapters` refuses a notebook that breaks one of them and keeps the old one; tests/notebooks/ holds every chapter
to all of them, and breaks each of them once on a made-up notebook. Cells are counted from 1, text cells too.
"""

import ast
import functools
import html.parser
import importlib.metadata
import io
import json
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import solutions

ROOT = Path(__file__).resolve().parent.parent
ROLES = ("setup", "given", "exercise", "check", "demo", "train", "plot", "widget")
NBVAL_TAGS = (
    "nbval-ignore-output",
    "nbval-check-output",
    "raises-exception",
)  # never nbval-skip: such a cell rots
REASON = "# output not compared:"  # stands in a cell tagged nbval-ignore-output, and goes on with why
MOST_LINES = {"setup": 8}
MOST_LINES_OF_A_CELL = 30
MOST_BYTES = 500_000
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_PLACES = "|".join(["home", "Users", "root", "work", "tmp", "opt", "var/folders", "private", "mnt", "srv"])
MACHINE_PATH = re.compile(rf"(?<![\w.~$\}}>*-])/({_PLACES})/[\w.]|(?<!\w)[A-Z]:\\[\w.]|ipykernel_\d")


class Problem(NamedTuple):
    """What is wrong; cell counts from 1, None where it is the notebook as a whole."""

    cell: int | None
    message: str

    def __str__(self) -> str:
        return self.message if self.cell is None else f"cell {self.cell}: {self.message}"


Problems = Iterator[Problem]


def role(cell: Any) -> str | None:
    """The one role of a code cell; None where there is none, or more than one."""
    roles = [tag for tag in cell.metadata.get("tags", []) if tag in ROLES]
    return roles[0] if cell.cell_type == "code" and len(roles) == 1 else None


def code_cells(nb: Any, *roles: str) -> Iterator[tuple[int, Any]]:
    """(number, cell) of the code cells; with roles only those that have one of them."""
    for number, cell in enumerate(nb.cells, start=1):
        if cell.cell_type == "code" and (not roles or role(cell) in roles):
            yield number, cell


def tree(cell: Any) -> ast.Module:
    """The syntax tree of a cell; empty where it can't be read (`plain_python` says so)."""
    try:
        return ast.parse(cell.source)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


# --- what the source decides -----------------------------------------------------------------------------------------


def one_role_a_cell(nb: Any) -> Problems:
    for number, cell in enumerate(nb.cells, start=1):
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "code":
            roles = [tag for tag in tags if tag in ROLES]
            if len(roles) != 1:
                got = " and ".join(roles) if roles else "none"
                yield Problem(number, f"a code cell has one role tag ({' '.join(ROLES)}); this one has {got}")
            unknown = [tag for tag in tags if tag not in (*ROLES, *NBVAL_TAGS)]
        elif cell.cell_type == "markdown":
            unknown = tags
        else:
            yield Problem(number, f"cells are code or markdown, not {cell.cell_type}")
            continue
        if unknown:
            yield Problem(number, f"unknown tag {', '.join(map(str, unknown))}")


def only_known_metadata(nb: Any) -> Problems:
    extra = sorted(set(nb.metadata) - {"kernelspec", "language_info", "grpo_lab"})
    if extra:
        yield Problem(None, f"metadata that don't belong into a chapter: {', '.join(extra)}")
    if nb.metadata.get("kernelspec", {}).get("name") != "python3":
        yield Problem(None, "the kernel is not python3")
    for number, cell in enumerate(nb.cells, start=1):
        extra = sorted(set(cell.metadata) - {"tags"})
        if extra:
            yield Problem(number, f"metadata that don't belong into a chapter: {', '.join(extra)}")


def plain_python(nb: Any) -> Problems:
    for number, cell in code_cells(nb):
        if not cell.source.strip():
            yield Problem(number, "an empty cell")
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            yield Problem(
                number, f"not plain Python (no magics here): {error.msg}, line {error.lineno} of it"
            )


def no_trailing_semicolon(nb: Any) -> Problems:
    """nbval doesn't honour it, so the value would be shown there and not in the book: write `_ = ...`."""
    for number, cell in code_cells(nb):
        try:
            tokens = [
                t for t in tokenize.generate_tokens(io.StringIO(cell.source).readline) if t.string.strip()
            ]
        except (tokenize.TokenError, SyntaxError):
            continue
        tokens = [token for token in tokens if token.type != tokenize.COMMENT]
        if tokens and tokens[-1].string == ";":
            yield Problem(number, "a trailing `;`: nbval doesn't honour it; write `_ = ...`")


def _is_a_quiz(cell: Any) -> bool:
    """Whether a cell is one call of Quiz: questions and explanations are text, however many lines they take."""
    body = tree(cell).body
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "Quiz"


def short_cells(nb: Any) -> Problems:
    for number, cell in code_cells(nb):
        if _is_a_quiz(cell):
            continue
        lines = sum(bool(line.strip()) for line in cell.source.splitlines())
        most = MOST_LINES.get(role(cell), MOST_LINES_OF_A_CELL)
        if lines > most:
            yield Problem(number, f"{lines} lines; a {role(cell) or 'code'} cell has at most {most}")


def plots_and_training_define_nothing(nb: Any) -> Problems:
    for number, cell in code_cells(nb, "plot", "train"):
        for node in ast.walk(tree(cell)):
            if isinstance(node, solutions.Definition):
                yield Problem(number, f"a {role(cell)} cell defines {node.name}; it only {role(cell)}s")


def _is_not_implemented(statement: ast.stmt) -> bool:
    raised = statement.exc if isinstance(statement, ast.Raise) else None
    named = raised.func if isinstance(raised, ast.Call) else raised
    return isinstance(named, ast.Name) and named.id == "NotImplementedError"


def exercise_function(cell: Any) -> ast.FunctionDef | None:
    """The one function of an exercise cell; None where the cell is anything else."""
    body = tree(cell).body
    return body[0] if len(body) == 1 and isinstance(body[0], ast.FunctionDef) else None


def exercises_are_signatures(nb: Any) -> Problems:
    for number, cell in code_cells(nb, "exercise"):
        node = exercise_function(cell)
        if node is None:
            yield Problem(number, "an exercise cell is one function and nothing else")
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if len(body) != 1 or not _is_not_implemented(body[0]):
            yield Problem(
                number,
                "an exercise is a signature and `raise NotImplementedError`; defining it never fails",
            )
        found = solutions.find(node.name)
        if found is None:
            yield Problem(number, f"the package has no function {node.name}, so nothing solves this exercise")
        elif solutions.arguments(node) != solutions.arguments(found.node):
            yield Problem(
                number,
                f"{node.name}({solutions.arguments(node)}) is not the package's "
                f"({solutions.arguments(found.node)})",
            )


def checked_names(cell: Any) -> list[str]:
    """The names that a check cell binds anew: `gae = check_gae(gae, otherwise=...)` gives ["gae"]."""
    bound = (target for node in tree(cell).body if isinstance(node, ast.Assign) for target in node.targets)
    return [target.id for target in bound if isinstance(target, ast.Name)]


def every_exercise_is_checked(nb: Any) -> Problems:
    for number, cell in code_cells(nb, "exercise"):
        node = exercise_function(cell)
        later = [one for at, one in code_cells(nb, "check") if at > number]
        if node is not None and not any(node.name in checked_names(one) for one in later):
            yield Problem(
                number, f"no later check cell says `{node.name} = check_...({node.name}, otherwise=...)`"
            )


def given_is_the_package(nb: Any) -> Problems:
    for number, cell in code_cells(nb, "given"):
        body = tree(cell).body
        shown = [node for node in body if isinstance(node, solutions.Definition)]
        rest = [node for node in body if node not in shown]
        if not shown or not all(isinstance(node, ast.Import | ast.ImportFrom) for node in rest):
            yield Problem(number, "a given cell shows functions of the package, with imports at most")
        for node in shown:
            found = solutions.find(node.name.removeprefix("given_"))
            if found is None:
                yield Problem(number, f"the package has no {node.name}")
            elif solutions.shape(node) != solutions.shape(found.node):
                yield Problem(number, f"{node.name} is not what {found.module} says; copy it anew")


@functools.cache
def base_list() -> frozenset[str]:
    """What a learner's environment has, as pip names it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return frozenset(canonicalize_name(Requirement(line).name) for line in project["dependencies"])


@functools.cache
def _homes() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def imports_within_the_base_list(nb: Any) -> Problems:
    for number, cell in code_cells(nb):
        for node in ast.walk(tree(cell)):
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0] if not node.level else "."}
                if any(alias.name == "*" for alias in node.names):
                    yield Problem(number, f"imports everything from {node.module}")
            else:
                continue
            for name in sorted(names - sys.stdlib_module_names - {"grpo_lab"}):
                if base_list().isdisjoint(map(canonicalize_name, _homes().get(name, [name]))):
                    yield Problem(number, f"imports {name}, which a learner does not have")


def ignored_outputs_say_why(nb: Any) -> Problems:
    for number, cell in code_cells(nb):
        ignored = "nbval-ignore-output" in cell.metadata.get("tags", [])
        if re.search(r"#\s*(NBVAL|PYTEST_VALIDATE)_", cell.source):
            yield Problem(number, "an nbval comment; use the tag")
        if ignored and not re.search(re.escape(REASON) + r" *\w", cell.source):
            yield Problem(number, f"its output is not compared; say why in the cell: `{REASON} ...`")


def pictures_in_text_have_alt(nb: Any) -> Problems:
    for number, cell in enumerate(nb.cells, start=1):
        if cell.cell_type != "markdown":
            continue
        if re.search(r"!\[\s*\]\(", cell.source) or not all(Html(cell.source).alts):
            yield Problem(number, "a picture without alt text")


# --- what is stored --------------------------------------------------------------------------------------------------


class Html(html.parser.HTMLParser):
    """The alt text of each <img> (empty where there is none) and the text that a reader sees."""

    def __init__(self, text: str):
        super().__init__()
        self.alts, self.words, self._hidden = [], [], 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.alts.append((dict(attrs).get("alt") or "").strip())
        self._hidden += tag in {"style", "script"}

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"style", "script"}

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def text_of(output: Any) -> str:
    """What a reader reads in an output: printed text, HTML without its tags, else the plain text of a value."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    if "text/html" in output.data:
        return Html(output.data["text/html"]).text
    return output.data.get("text/markdown") or output.data.get("text/plain", "")


def executed_in_order(nb: Any) -> Problems:
    """nbval passes a notebook whose outputs and counts were stripped: it then compares nothing."""
    for count, (number, cell) in enumerate(code_cells(nb), start=1):
        if cell.execution_count != count:
            yield Problem(number, f"its execution count is {cell.execution_count}, not {count}")
        for output in cell.outputs:
            if output.output_type == "execute_result" and output.execution_count != count:
                yield Problem(
                    number, f"an output has the execution count {output.execution_count}, not {count}"
                )


def no_errors(nb: Any) -> Problems:
    for number, cell in code_cells(nb):
        errors = [output for output in cell.outputs if output.output_type == "error"]
        wanted = "raises-exception" in cell.metadata.get("tags", [])
        if errors and not wanted:
            yield Problem(number, f"a stored error: {errors[0].ename}: {errors[0].evalue}")
        if wanted and not errors:
            yield Problem(number, "tagged raises-exception, but it stored no error")
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr" and "Warning:" in output.text:
                yield Problem(number, f"a stored warning: {output.text.strip().splitlines()[0][:120]}")


def no_widget_state(nb: Any) -> Problems:
    if "widgets" in nb.metadata:
        yield Problem(None, "holds the state of widgets")
    for number, cell in code_cells(nb):
        if any(WIDGET_VIEW in output.get("data", {}) for output in cell.outputs):
            yield Problem(number, "holds the view of a widget, which differs from run to run")


def no_machine_paths(nb: Any) -> Problems:
    for number, cell in enumerate(nb.cells, start=1):
        stored = [cell.source]
        for output in cell.get("outputs", []):
            kept = {
                kind: text for kind, text in output.get("data", {}).items() if not kind.startswith("image/")
            }
            rest = [output.get("text", ""), *output.get("traceback", [])]
            stored += [
                text if isinstance(text, str) else json.dumps(text) for text in (*kept.values(), *rest)
            ]
        for text in stored:
            text = re.sub(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", "", text)
            if match := MACHINE_PATH.search(text):
                around = text[max(0, match.start() - 20) : match.end() + 30]
                yield Problem(number, f"a path of one machine: {around!r}")
                break


def small(nb: Any) -> Problems:
    size = len(nbformat.writes(nb).encode())
    if size > MOST_BYTES:
        yield Problem(None, f"{size // 1000} KB; at most {MOST_BYTES // 1000} KB")


def _has_figure(output: Any) -> bool:
    data = output.get("data", {})
    return any(kind.startswith("image/") for kind in data) or bool(
        re.search("<(img|svg)", data.get("text/html", ""))
    )


def _says_a_number(text: str) -> bool:
    """A sentence with a number in it, not the repr of a figure."""
    return not text.lstrip().startswith("<") and bool(re.search(r"\d", text)) and len(text.split()) >= 4


def pictures_have_alt(nb: Any) -> Problems:
    """JupyterLab shows an image/png without any alt text, whatever its metadata say: only <img alt> has one."""
    for number, cell in code_cells(nb):
        for output in cell.outputs:
            data = output.get("data", {})
            page = Html(data.get("text/html", ""))
            if not all(page.alts):
                yield Problem(number, "an <img> without alt text")
            if any(kind.startswith("image/") for kind in data) and not page.alts:
                yield Problem(number, "a bare picture: show it as HTML, <img alt=...>")


def figures_have_a_reading(nb: Any) -> Problems:
    """One sentence with its numbers: in the figure's own output, printed by the same cell, or the text that follows."""
    for number, cell in code_cells(nb):
        if not any(map(_has_figure, cell.outputs)):
            continue
        texts = [text_of(output) for output in cell.outputs]
        texts += [output.get("data", {}).get("text/plain", "") for output in cell.outputs]
        following = nb.cells[number] if number < len(nb.cells) else None
        if following is not None and following.cell_type == "markdown":
            texts.append(following.source.split("\n\n")[0])
        if not any(map(_says_a_number, texts)):
            yield Problem(number, "a figure without a reading: one sentence with its numbers, below it")


SOURCE_RULES = (
    one_role_a_cell,
    only_known_metadata,
    plain_python,
    no_trailing_semicolon,
    short_cells,
    plots_and_training_define_nothing,
    exercises_are_signatures,
    every_exercise_is_checked,
    given_is_the_package,
    imports_within_the_base_list,
    ignored_outputs_say_why,
    pictures_in_text_have_alt,
)
STORED_RULES = (
    executed_in_order,
    no_errors,
    no_widget_state,
    no_machine_paths,
    small,
    pictures_have_alt,
    figures_have_a_reading,
)


def problems(nb: Any, rules: tuple = SOURCE_RULES + STORED_RULES) -> list[Problem]:
    return [problem for rule in rules for problem in rule(nb)]
