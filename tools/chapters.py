"""chapters/src/NN_name.py to chapters/NN_name.ipynb: one way, executed, and the same bytes each time.

    python -m tools.chapters                  build what is not up to date
    python -m tools.chapters 05 --force       build chapter 05 in any case
    python -m tools.chapters --check          only say what is not up to date (exit status 1 if anything)

The source is py:percent text; jupytext is used as a library and leaves nothing in the notebook, so no later save or
sync can write into a source. A hash of the source in the notebook's metadata says whether it is up to date. A chapter
that fails, or breaks a rule of tools/rules.py, leaves the old notebook as it was.
"""

import argparse
import contextlib
import copy
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ipykernel.kernelspec
import jupytext
import nbclient
import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from make import offline
from tools import rules

ROOT = Path(__file__).resolve().parent.parent
VERSION = 1  # raise it when what is written changes for the same source: every chapter is then built anew
TIMEOUT = 120  # seconds a cell, the same as under nbval
SANITIZE = Path(__file__).with_name("nbval_sanitize.cfg")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}


class Chapter(NamedTuple):
    source: Path
    notebook: Path

    @property
    def name(self) -> str:
        return self.source.stem


class BuildError(Exception):
    """A chapter could not be built; the message names the file, the line and the cell."""


def chapters(folder: Path) -> list[Chapter]:
    """The sources under folder/src in reading order, each with the notebook it becomes."""
    return [Chapter(path, folder / f"{path.stem}.ipynb") for path in sorted((folder / "src").glob("*.py"))]


def orphans(folder: Path) -> list[Path]:
    """Notebooks that no source becomes."""
    ours = {chapter.notebook for chapter in chapters(folder)}
    return sorted(path for path in folder.glob("*.ipynb") if path not in ours)


# --- source to notebook ----------------------------------------------------------------------------------------------


def fingerprint(text: str) -> str:
    return "sha256:" + hashlib.sha256(f"{VERSION}\n{text}".encode()).hexdigest()


def read_source(path: Path) -> str:
    return path.read_text(encoding="utf-8").replace("\r\n", "\n")


def cell_lines(text: str, nb: Any) -> list[int]:
    """The line of the source on which each cell's own text starts, counted from 1; 0 where it can't be told.

    jupytext doesn't say, so the `# %%` markers are counted and must be as many as there are cells.
    """
    lines = text.splitlines()
    markers = [number for number, line in enumerate(lines, start=1) if re.match(r"# %%(\s|$)", line)]
    if len(markers) != len(nb.cells):
        return [0] * len(nb.cells)
    starts = []
    for marker in markers:
        blank = 0
        while marker + blank < len(lines) and not lines[marker + blank].strip():
            blank += 1
        starts.append(marker + 1 + blank)
    return starts


def skeleton(text: str) -> Any:
    """The notebook of a source, not executed. Ids follow from the cells' text, so an edit changes one of them."""
    parsed = jupytext.reads(text, fmt="py:percent")
    seen, cells = {}, []
    for cell in parsed.cells:
        # jupytext keeps how many blank lines stood between two cells; a notebook has no use for it
        metadata = {key: value for key, value in cell.metadata.items() if not key.startswith("lines_to_")}
        new = nbformat.from_dict({**cell, "metadata": metadata})
        start = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[start] = seen.get(start, 0) + 1
        new.id = start if seen[start] == 1 else f"{start}-{seen[start]}"
        cells.append(new)
    nb = nbformat.v4.new_notebook(cells=cells, metadata=copy.deepcopy(METADATA))
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.metadata["grpo_lab"] = {"source": fingerprint(text)}
    return nb


def _without_outputs(nb: Any) -> list[tuple]:
    return [(cell.cell_type, cell.id, cell.source, cell.metadata.get("tags", [])) for cell in nb.cells]


def why_stale(chapter: Chapter) -> str:
    """Why a notebook must be built anew; empty where it is up to date."""
    if not chapter.notebook.exists():
        return "not built yet"
    try:
        nb = nbformat.read(chapter.notebook, as_version=4)
    except (ValueError, nbformat.ValidationError, AttributeError):
        return "its notebook can't be read"
    text = read_source(chapter.source)
    if nb.metadata.get("grpo_lab", {}).get("source") != fingerprint(text):
        return "the source has changed"
    if _without_outputs(nb) != _without_outputs(skeleton(text)):
        return "the notebook was edited: edit the source"
    if any(rules.executed_in_order(nb)):
        return "not executed"
    return ""


# --- execution -------------------------------------------------------------------------------------------------------


class CurrentEnvironment(KernelSpecManager):
    """Whatever kernels are installed on this machine, python3 is the Python that runs this file."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(
            resource_dir=ipykernel.kernelspec.RESOURCES, **ipykernel.kernelspec.get_kernel_dict()
        )


@contextlib.contextmanager
def kernel_environment(**more: str) -> Iterator[dict[str, str]]:
    """The environment of a kernel: this checkout's package, the CPU, one thread, offline, nobody's settings."""
    with tempfile.TemporaryDirectory(prefix="grpo-lab-", ignore_cleanup_errors=True) as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GRPO_LAB_")}
        path = os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
        ours = {"GRPO_LAB_HOME": home, "IPYTHONDIR": os.path.join(home, "ipython"), "PYTHONPATH": path}
        ours |= {"CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
        yield {**kept, **offline(), **ours, **more}


class CellFailed(Exception):
    """A cell raised, ran out of time, or took its kernel down. cell counts from 0, line from 1 (0: unknown)."""

    def __init__(self, cell: int, message: str, line: int = 0, traceback: str = ""):
        super().__init__(message)
        self.cell, self.message, self.line, self.traceback = cell, message, line, traceback


def execute(nb: Any, *, cwd: Path, environment: dict[str, str], timeout: float = TIMEOUT) -> Any:
    """A copy of the notebook, executed from top to bottom; raises CellFailed."""
    nb, current = copy.deepcopy(nb), [0]

    def started(cell: Any, cell_index: int) -> None:
        current[0] = cell_index

    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=CurrentEnvironment())
    client = nbclient.NotebookClient(
        nb,
        km=manager,
        timeout=timeout,
        resources={"metadata": {"path": str(cwd)}},
        store_widget_state=False,
        record_timing=False,
        coalesce_streams=True,
        on_cell_start=started,
        extra_arguments=["--IPKernelApp.log_level=40"],  # else each kernel warns that it talks over TCP
    )
    try:
        client.execute(env=environment, cleanup_kc=True)  # the kernel ends whatever happens
    except CellExecutionError as error:
        traceback = without_colours(str(error.traceback))
        at = re.search(r"Cell In ?\[\d+\], line (\d+)", traceback)
        message = f"{error.ename}: {without_colours(error.evalue)}"
        raise CellFailed(current[0], message, int(at[1]) if at else 0, traceback) from None
    except CellTimeoutError:
        raise CellFailed(current[0], f"ran longer than {timeout:g} s") from None
    except DeadKernelError:
        raise CellFailed(current[0], "the kernel died") from None
    return nb


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def sanitize(text: str) -> str:
    """What nbval does to text before it compares, pictures aside: so no clock, address or place is ever stored."""
    pairs = re.findall(r"^regex: (.*)$\n^replace: (.*)$", SANITIZE.read_text(encoding="ascii"), re.MULTILINE)
    # Every second part is a picture. Left in, 100 KB of it would keep the patterns busy for minutes.
    parts = re.split(r"(data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+)", text)
    for pattern, new in pairs:
        if not pattern.startswith("data:image"):
            parts[::2] = [re.sub(pattern, new, part) for part in parts[::2]]
    return "".join(parts)


def clean(nb: Any) -> Any:
    """The executed notebook without what differs from run to run: widget views, clocks, addresses, tracebacks."""
    nb = copy.deepcopy(nb)
    source = nb.metadata.get("grpo_lab")
    nb.metadata = nbformat.from_dict({**copy.deepcopy(METADATA), **({"grpo_lab": source} if source else {})})
    for cell in nb.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        kept = []
        for output in cell.outputs:
            if output.output_type == "stream":
                output.text = sanitize(output.text)
            elif output.output_type == "error":
                output.evalue = sanitize(output.evalue)
                output.traceback = [f"{output.ename}: {output.evalue}"]
            else:
                output.data.pop(rules.WIDGET_VIEW, None)
                for kind, content in output.data.items():
                    if kind.startswith("text/") and isinstance(content, str):
                        output.data[kind] = sanitize(content)
                if not output.data:
                    continue
            kept.append(output)
        cell.outputs = kept
    return nb


# --- building --------------------------------------------------------------------------------------------------------


def write(path: Path, nb: Any) -> None:
    """Whole or not at all."""
    nbformat.validate(nb)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes((nbformat.writes(nb).rstrip("\n") + "\n").encode())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _told(chapter: Chapter, lines: list[int], problems: list[rules.Problem]) -> str:
    def place(cell: int | None) -> str:
        line = lines[cell - 1] if cell else 0
        return f"{chapter.source.name}:{line}" if line else chapter.source.name

    return "\n".join(f"  {place(problem.cell)}: {problem}" for problem in problems)


def build(chapter: Chapter, *, timeout: float = TIMEOUT) -> Any:
    """Build one chapter and write its notebook; raises BuildError and leaves the old one as it was."""
    text = read_source(chapter.source)
    nb = skeleton(text)
    lines = cell_lines(text, nb)
    if 0 in lines:
        raise BuildError(
            f"{chapter.source.name}: {len(nb.cells)} cells, but not as many `# %%` lines: the file starts with one, "
            "has no header, and none stands inside a string"
        )
    if broken := rules.problems(nb, rules.SOURCE_RULES):
        raise BuildError("the source breaks rules:\n" + _told(chapter, lines, broken))
    try:
        with kernel_environment() as environment:
            nb = clean(execute(nb, cwd=chapter.notebook.parent, environment=environment, timeout=timeout))
    except CellFailed as failed:
        line = lines[failed.cell] + max(failed.line - 1, 0)
        kind = rules.role(nb.cells[failed.cell])
        message = f"{chapter.source.name}:{line}: cell {failed.cell + 1} ({kind}): {failed.message}"
        raise BuildError(f"{message}\n\n{failed.traceback}".rstrip()) from None
    if broken := rules.problems(nb):
        raise BuildError("what was executed breaks rules:\n" + _told(chapter, lines, broken))
    write(chapter.notebook, nb)
    return nb


def chosen(all_chapters: list[Chapter], names: list[str]) -> list[Chapter]:
    """The chapters that the names mean: whole names or how they begin, `05` for 05_group_baseline."""
    picked = []
    for name in names:
        stem = Path(name).name.removesuffix(".py").removesuffix(".ipynb")
        hits = [one for one in all_chapters if one.name == stem] or [
            one for one in all_chapters if one.name.startswith(stem)
        ]
        if len(hits) != 1:
            there = ", ".join(one.name for one in hits or all_chapters) or "none"
            raise BuildError(f"{name} names {len(hits)} chapters. There are: {there}.")
        picked += [hit for hit in hits if hit not in picked]
    return picked if names else all_chapters


def main(words: list[str] | None = None, folder: Path = ROOT / "chapters") -> int:
    parser = argparse.ArgumentParser(prog="make chapters", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these chapters (05 is enough for 05_group_baseline)")
    parser.add_argument("--check", action="store_true", help="only say what is not up to date")
    parser.add_argument("--force", action="store_true", help="build what is up to date, too")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds a cell (%(default)s)")
    asked = parser.parse_args(words)
    try:
        wanted = chosen(chapters(folder), asked.names)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 2
    bad = []
    for chapter in wanted:
        stale = why_stale(chapter)
        if not stale and not asked.force:
            print(f"{chapter.name}: up to date")
        elif asked.check:
            print(f"{chapter.name}: {stale or 'up to date'}")
            bad += [chapter.name] if stale else []
        else:
            print(f"{chapter.name}: {stale or 'asked for'} ... ", end="", flush=True)
            started = time.monotonic()
            try:
                nb = build(chapter, timeout=asked.timeout)
            except BuildError as error:
                kept = "; the old notebook is as it was" if chapter.notebook.exists() else ""
                print(f"FAILED{kept}\n{error}\n")
                bad.append(chapter.name)
            else:
                size = chapter.notebook.stat().st_size // 1000
                print(f"{len(nb.cells)} cells, {size} KB, {time.monotonic() - started:.0f} s")
    for path in [] if asked.names else orphans(folder):
        print(f"{path.name}: no source becomes this notebook")
        bad.append(path.name)
    if not wanted:
        print("no chapters yet: chapters/src/ has no NN_name.py")
    if bad:
        print(f"{'not up to date' if asked.check else 'not built'}: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
