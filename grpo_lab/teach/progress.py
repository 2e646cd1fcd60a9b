"""What a learner has done, in one JSON file: exercises passed, bets placed, questions answered.

The file lies in $GRPO_LAB_HOME, or in the user's data folder. It may be deleted at any time: nothing in a lesson
depends on it, and nothing that a check, a bet or a question prints does. Two notebooks may write at once. A file that
can't be read is put aside, never overwritten. Where nothing can be written, the lesson goes on and says so once.
"""

import contextlib
import html
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock, Timeout

VERSION = 1
KINDS = ("checks", "bets", "questions")
PATIENCE = 5.0  # seconds to wait for another notebook that is writing just now

_said: set[str] = set()  # what has been said once already, in this kernel


def home() -> Path:
    """The folder of the progress file: $GRPO_LAB_HOME, or the user's data folder."""
    return Path(os.environ.get("GRPO_LAB_HOME") or platformdirs.user_data_dir("grpo-lab"))


def path() -> Path:
    """The progress file."""
    return home() / "progress.json"


def record(kind: str, name: str, entry: dict[str, Any]) -> bool:
    """Remember one thing under its name; a later entry replaces an earlier one. Says whether it could be written.

    kind    "checks", "bets" or "questions"
    Never raises because of the file or its folder.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    try:
        home().mkdir(parents=True, exist_ok=True)
        with FileLock(path().with_suffix(".lock"), timeout=PATIENCE):
            state = _read(put_aside=True)
            state[kind][name] = entry
            _write(state)
    except Timeout:
        _say_once(
            f"Your progress could not be noted: another notebook holds {path()} locked. The lesson goes on."
        )
        return False
    except (OSError, NotImplementedError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        _say_once(f"Your progress can't be noted in {home()} ({why}). The lesson goes on without.")
        return False
    return True


def load() -> dict[str, dict[str, dict[str, Any]]]:
    """What is noted: kind -> name -> entry. Empty where there is no file or it can't be read. Writes nothing."""
    try:
        return _read(put_aside=False)
    except OSError:
        return {kind: {} for kind in KINDS}


def reset() -> Path | None:
    """Begin anew: the file is put aside, not deleted. Returns where it lies now, None if there was none."""
    if not path().is_file():
        return None
    with FileLock(path().with_suffix(".lock"), timeout=PATIENCE):
        return _put_aside("before-reset")


class Report:
    """The progress as a small table with bars. Put `show()` on the last line of a cell."""

    def __init__(self, lines: list[tuple[str, int, int]], missing: list[str]):
        self.lines, self.missing = lines, missing

    def __repr__(self) -> str:
        rows = []
        for what, done, total in self.lines:
            filled = round(20 * done / total) if total else 0
            rows.append(f"{what:<20} {'#' * filled}{'.' * (20 - filled)} {done} of {total}")
        return "\n".join(rows)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{what}</th>'
            f'<td><progress max="{max(total, 1)}" value="{done}" aria-label="{what}"></progress></td>'
            f'<td style="text-align:right">{done} of {total}</td></tr>'
            for what, done, total in self.lines
        )
        left = ""
        if self.missing:
            names = ", ".join(html.escape(name) for name in self.missing)
            left = f"<details><summary>still to write: {len(self.missing)}</summary>{names}</details>"
        return {"text/html": f"<table>{rows}</table>{left}", "text/plain": repr(self)}


def show(exercises: Iterable[str] | None = None) -> Report:
    """Exercises passed, bets won, questions answered right.

    exercises   the names that count; all that have a check, if left out
    """
    if exercises is None:
        from grpo_lab.teach.probes import PROBES

        exercises = PROBES
    names, state = list(exercises), load()
    passed = [name for name in names if state["checks"].get(name, {}).get("passed")]
    lines = [("exercises passed", len(passed), len(names))]
    for kind, what in (("bets", "bets won"), ("questions", "questions right")):
        right = sum(bool(entry.get("right")) for entry in state[kind].values())
        lines.append((what, right, len(state[kind])))
    return Report(lines, [name for name in names if name not in passed])


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        print(message)


def _read(*, put_aside: bool) -> dict[str, dict[str, Any]]:
    """The file's entries. One that can't be read, or is of another version, is put aside first if asked for."""
    state: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    try:
        text = path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return state
    except UnicodeDecodeError:
        text = ""
    try:
        stored = json.loads(text)
        version = stored["version"]
        whole = all(isinstance(e, dict) for kind in KINDS for e in stored.get(kind, {}).values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        version, whole, stored = None, False, {}
    if version == VERSION and whole:
        return {kind: dict(stored.get(kind, {})) for kind in KINDS}
    if version is not None and whole:  # another version: what has our form is taken over
        state = {kind: dict(stored.get(kind, {})) for kind in KINDS}
    if put_aside:
        _put_aside("unreadable" if version is None or not whole else f"version-{version}")
    return state


def _put_aside(why: str) -> Path:
    """Rename the file to a name that is free and says why."""
    number = 1
    while (aside := path().with_name(f"progress.{why}-{number}.json")).exists():
        number += 1
    os.replace(path(), aside)
    _say_once(f"The old progress file is kept as {aside.name}; a new one has been begun.")
    return aside


def _write(state: dict[str, Any]) -> None:
    """Write beside and rename: a reader sees the old file or the new one, never half of it."""
    draft = path().with_name(f"progress.{os.getpid()}.new")
    try:
        draft.write_text(
            json.dumps({"version": VERSION, **state}, indent=1, sort_keys=True), encoding="utf-8"
        )
        os.replace(draft, path())
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
