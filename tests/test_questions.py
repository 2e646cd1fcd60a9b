"""What learners ask, and where it is answered: each entry of tests/questions/*.toml holds.

An entry names a chapter's cell (a text that only that cell's source has) and what its stored output must say, or a
test, or both. A number in the output is compared with the value that the entry states.
"""

import ast
import re
import tomllib
from pathlib import Path

import nbformat
import pytest

from tools import rules

ROOT = Path(__file__).resolve().parent.parent
KEYS = {"number", "asks", "shows", "chapter", "cell", "output", "value", "within", "test"}
ENTRIES = [
    (file.stem, entry)
    for file in sorted((ROOT / "tests" / "questions").glob("*.toml"))
    for entry in tomllib.loads(file.read_text(encoding="utf-8"))["question"]
]
# What the chapters that exist must answer, by chapter number.
WANTED = {
    "01": {16, 17, 18, 19, 20, 21, 23, 48, 50},
    "02": {1, 2, 6},
    "03": {7, 8, 10, 11, 12, 14},
    "04": {54},
    "05": {24, 25, 26, 27, 30},
}


def _words(output) -> str:
    """Everything a reader sees of an output: text, HTML without its tags, and the plain text of a value."""
    return f"{rules.text_of(output)}\n{output.get('data', {}).get('text/plain', '')}"


@pytest.mark.parametrize(
    ("file", "entry"), ENTRIES, ids=lambda x: x if isinstance(x, str) else str(x["number"])
)
def test_the_question_is_answered_where_the_table_says(file, entry):
    assert set(entry) <= KEYS and {"number", "asks", "shows"} <= set(entry)
    assert "test" in entry or {"chapter", "cell", "output"} <= set(entry)
    if "chapter" in entry:
        assert entry["chapter"].startswith(file)
        nb = nbformat.read(ROOT / "chapters" / f"{entry['chapter']}.ipynb", as_version=4)
        cells = [cell for _, cell in rules.code_cells(nb) if entry["cell"] in cell.source]
        assert len(cells) == 1, f"{len(cells)} cells hold {entry['cell']!r}"
        said = "\n".join(map(_words, cells[0].outputs))
        found = re.search(entry["output"], said)
        assert found, f"{entry['output']!r} is not in {said!r}"
        if "value" in entry:
            assert float(found[1].replace("−", "-")) == pytest.approx(
                entry["value"], abs=entry.get("within", 0)
            )
    if "test" in entry:
        path, name = entry["test"].split("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in names and name.startswith("test_")


@pytest.mark.parametrize("chapter", WANTED)
def test_no_question_of_a_chapter_is_left_out(chapter):
    if not list((ROOT / "chapters" / "src").glob(f"{chapter}_*.py")):
        pytest.skip(f"chapter {chapter} is not written yet")
    assert {entry["number"] for file, entry in ENTRIES if file == chapter} >= WANTED[chapter]
