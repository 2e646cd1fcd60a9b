"""The arrows of the house: teach -> engine -> concepts -> (masked, guard), and nothing the other way.

Read from the syntax trees, so that an import inside a function counts too; and once by really importing each
concept in a fresh interpreter.
"""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import grpo_lab
import grpo_lab.concepts

PACKAGE = Path(grpo_lab.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
CONCEPT_NAMES = sorted(module.name for module in pkgutil.iter_modules(grpo_lab.concepts.__path__))
ONLY_IN_TEACH = {"matplotlib", "ipywidgets", "IPython"}


def _module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(source: str, module: str, *, is_package: bool = False) -> set[str]:
    """Every module this source may import, as full names; `from a import b` counts as both a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                up = node.level - 1 if is_package else node.level
                base = ".".join(parents[: len(parents) - up] + ([base] if base else []))
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


def _imports(path: Path) -> set[str]:
    return imports_of(
        path.read_text(encoding="utf-8"), _module_name(path), is_package=path.name == "__init__.py"
    )


def _room(module: str) -> str:
    """The second part of grpo_lab.<room>...: concepts, engine, teach, guard, cli; empty for grpo_lab itself."""
    parts = module.split(".")
    return parts[1] if parts[0] == "grpo_lab" and len(parts) > 1 else ""


def forbidden(module: str, imported: set[str]) -> set[str]:
    """The imports that this module may not have."""
    ours = {name for name in imported if name.split(".")[0] == "grpo_lab"}
    room = _room(module)
    if module == "grpo_lab" or room == "guard":
        return ours
    if room == "concepts":
        foreign = {name for name in imported - ours if name.split(".")[0] not in {"torch", "math"}}
        parents = {"grpo_lab", "grpo_lab.concepts"}
        shared = ("grpo_lab.guard", "grpo_lab.concepts.masked")
        return foreign | {name for name in ours - parents if not any(_within(name, one) for one in shared)}
    if _within(module, "grpo_lab.teach.checks"):
        return {name for name in ours if _room(name) == "concepts"}
    if room != "teach":
        return {name for name in ours if _room(name) == "teach"}
    return set()


def _within(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def test_the_rules_themselves_can_be_broken():
    """Each forbidden arrow in a made-up file, seen."""
    broken = [
        ("grpo_lab", "from grpo_lab.concepts.gae import gae"),
        ("grpo_lab.guard", "from grpo_lab.concepts import masked"),
        ("grpo_lab.concepts.gae", "from grpo_lab.concepts.kl import k1"),
        ("grpo_lab.concepts.gae", "from grpo_lab.concepts import kl"),
        ("grpo_lab.concepts.gae", "from .kl import k1"),
        ("grpo_lab.concepts.gae", "def f():\n    import grpo_lab.engine.batch"),
        ("grpo_lab.concepts.gae", "import numpy"),
        ("grpo_lab.engine.train", "from grpo_lab import teach"),
        ("grpo_lab.engine.train", "from ..teach.plots import curve"),
        ("grpo_lab.teach.checks", "from grpo_lab.concepts.gae import gae"),
        ("grpo_lab.teach.checks.gae", "import grpo_lab.concepts.gae"),
    ]
    for module, source in broken:
        assert forbidden(module, imports_of(source, module)), (module, source)
    fine = [
        (
            "grpo_lab.concepts.gae",
            "import math\nimport torch\nfrom torch import Tensor\nfrom grpo_lab.guard import require",
        ),
        ("grpo_lab.concepts.gae", "from grpo_lab import guard\nfrom grpo_lab.concepts import masked"),
        ("grpo_lab.concepts.gae", "from grpo_lab.concepts.masked import masked_mean"),
        ("grpo_lab.engine.train", "from grpo_lab.concepts.gae import gae"),
        ("grpo_lab.teach.plots", "from grpo_lab.engine.train import train"),
    ]
    for module, source in fine:
        assert not forbidden(module, imports_of(source, module)), (module, source)


@pytest.mark.parametrize("path", FILES, ids=_module_name)
def test_arrows_point_one_way(path):
    assert forbidden(_module_name(path), _imports(path)) == set()


@pytest.mark.parametrize("path", FILES, ids=_module_name)
def test_pictures_and_widgets_are_drawn_in_teach_only(path):
    if _room(_module_name(path)) != "teach":
        assert {name.split(".")[0] for name in _imports(path)} & ONLY_IN_TEACH == set()


@pytest.mark.parametrize("path", FILES, ids=_module_name)
def test_nothing_imports_everything_or_the_chapters(path):
    names = _imports(path)
    assert not any(name.endswith(".*") for name in names)
    assert not any(name.split(".")[0] in {"chapters", "tests", "benchmarks"} for name in names)


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=_module_name)
def test_packages_re_export_nothing(path):
    """A function that shares its module's name would hide the module."""
    assert {name for name in _imports(path) if name.split(".")[0] == "grpo_lab"} == set()


def test_concepts_need_torch_only():
    """Each concept imported in one fresh interpreter, one after the other."""
    script = "\n".join(
        [
            "import sys",
            *(f"import grpo_lab.concepts.{name}" for name in CONCEPT_NAMES),
            "heavy = {'transformers', 'matplotlib', 'ipywidgets', 'IPython', 'trl', 'pandas'} & set(sys.modules)",
            "assert not heavy, heavy",
            "assert not any(name.startswith(('grpo_lab.engine', 'grpo_lab.teach')) for name in sys.modules)",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
