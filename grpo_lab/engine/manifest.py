"""The manifest of `data/`: what lies there, how large it is, and the command that makes it again.

One row a folder, between two marks in `data/README.md`. A test holds it true, so nothing lies there unnamed.
"""

import hashlib
import json
from pathlib import Path

from grpo_lab.engine.tasks import TASKS
from grpo_lab.guard import require

BEGIN, END = "<!-- manifest -->", "<!-- /manifest -->"


def rows(data: Path) -> list[str]:
    """One line of the table for each folder with files: path, files, bytes, hash of all contents, command."""
    folders = sorted({file.parent for file in data.rglob("*") if file.is_file() and file.parent != data})
    lines = []
    for folder in folders:
        files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
        digest = hashlib.sha256()
        for file in files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        size = sum(file.stat().st_size for file in files)
        name = folder.relative_to(data).as_posix()
        lines.append(
            f"| `{name}` | {len(files)} | {size:,} | `{digest.hexdigest()[:12]}` | `{command(folder, data)}` |"
        )
    return lines


def command(folder: Path, data: Path) -> str:
    """What makes the contents of a folder of data/ again."""
    parts = folder.relative_to(data).parts
    if parts[0] == "warm_starts" and len(parts) == 2:
        note = json.loads((folder / "grpo_lab.json").read_text(encoding="utf-8"))
        task = next(name for name, make in TASKS.items() if make().name == note["task"])
        seed = note["seed"]
        asked = f"--task {task} --preset {note['preset']} --seeds {seed}-{seed}"
        return f"grpo-lab warm-start {asked} --out data/warm_starts"
    if parts[0] == "curves":
        return f"grpo-lab reproduce {parts[1]}" if len(parts) > 1 else "written by hand"
    if parts[0] == "recorded" and len(parts) == 1:
        return "grpo-lab record"
    raise ValueError(f"nothing says how data/{'/'.join(parts)} is made; teach grpo_lab/engine/manifest.py")


def write_manifest(data: Path) -> str:
    """Write the rows between the marks of data/README.md; returns a line that says so. ValueError without marks."""
    readme = data / "README.md"
    text = readme.read_text(encoding="utf-8")
    require(BEGIN in text and END in text, f"{readme} lacks the marks {BEGIN} and {END}")
    table = rows(data)
    head = "| folder | files | bytes | sha256 | made by |\n|---|---|---|---|---|\n"
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    readme.write_text(
        before + BEGIN + "\n" + head + "\n".join(table) + "\n" + after, encoding="utf-8", newline="\n"
    )
    return f"{len(table)} folders in {readme}"
