"""Recordings: real numbers of a real run, kept small, so that a chapter prints the same digits on every machine.

Each is one module of `grpo_lab/engine/recorded/`: its docstring says what it holds, `record()` makes it, and `first()`
makes again a part that takes seconds, which a test compares with the file. `grpo-lab record NAME` writes
`data/recorded/NAME.safetensors`, with the command and the versions in its metadata.
"""

import functools
import importlib
import os
import pkgutil
import platform
import tempfile
from pathlib import Path
from types import ModuleType

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

import grpo_lab.engine.recorded
from grpo_lab import __version__
from grpo_lab.engine.warm_start import DATA
from grpo_lab.guard import require

FOLDER = DATA / "recorded"
MOST_BYTES = 200_000


@functools.cache
def recordings() -> tuple[str, ...]:
    """The names of all recordings that this package can make."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(grpo_lab.engine.recorded.__path__)))


def maker(name: str) -> ModuleType:
    """The module that makes a recording. Raises: ValueError for a name that none has."""
    require(name in recordings(), f"there is no recording {name!r}; there are {', '.join(recordings())}")
    return importlib.import_module(f"grpo_lab.engine.recorded.{name}")


def read_recording(name: str, *, folder: Path | str = FOLDER) -> dict[str, Tensor]:
    """A recording: name -> tensor; the docstring of its module says what each holds.

    Raises: ValueError for an unknown name, a file that is missing or one that can't be read.
    """
    maker(name)
    path = Path(folder) / f"{name}.safetensors"
    make = f"make it with `grpo-lab record {name}`, or get it back with `git checkout data/`"
    require(path.is_file(), f"the recording {path.name} is not in {path.parent}; {make}")
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} can't be read ({error}); {make}") from error


def record(name: str, *, folder: Path | str = FOLDER) -> Path:
    """Make a recording and write it, all of it or nothing. Returns the file.

    Raises: ValueError for an unknown name, a folder that can't be written to, or a recording over MOST_BYTES.
    """
    made, path = maker(name), Path(folder) / f"{name}.safetensors"
    # Before the work of minutes, not after it: can the file be written at all?
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise ValueError(
            f"{path.parent} can't be written to ({error.strerror}). Choose another folder."
        ) from error
    tensors = {key: value.contiguous() for key, value in made.record().items()}
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    require(size <= MOST_BYTES, f"{name} holds {size:,} bytes; keep it within {MOST_BYTES:,}")
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    note = {
        "command": f"grpo-lab record {name}",
        "grpo_lab": __version__,
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }
    try:
        save_file(tensors, draft, metadata=note)
        os.chmod(draft, 0o644)  # safetensors makes files that only their owner can read
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def texts_of(codes_RT: Tensor) -> list[str]:
    """Texts kept as rows of character codes (uint8), 0 where a row is shorter."""
    return ["".join(chr(code) for code in row if code) for row in codes_RT.tolist()]


def codes_of(texts: list[str]) -> Tensor:
    """Texts as rows of character codes (uint8), 0 where a row is shorter: safetensors holds numbers only.

    Raises: ValueError for a character beyond code 255.
    """
    require(all(0 < ord(c) < 256 for text in texts for c in text), "only characters of code 1 to 255")
    width = max(map(len, texts), default=0)
    rows = [[ord(c) for c in text] + [0] * (width - len(text)) for text in texts]
    return torch.tensor(rows, dtype=torch.uint8).reshape(len(texts), width)
