"""Settings of notebooks under pytest, so that a bare `pytest --nbval chapters/x.ipynb` works as `make test` does.

The settings of the tests are in tests/conftest.py.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
HOMES = pytest.StashKey[str]()


def runs_notebooks(config):
    return bool(getattr(config.option, "nbval", False) or getattr(config.option, "nbval_lax", False))


def pytest_configure(config):
    if not runs_notebooks(config):
        return
    option = config.option
    option.nbval_current_env = True  # this Python, whatever kernel name a notebook was saved with
    option.nbval_sanitize_with = option.nbval_sanitize_with or str(ROOT / "tools/nbval_sanitize.cfg")
    if option.nbval_cell_timeout == 2000:  # nbval's own default: a dead kernel would cost half an hour
        option.nbval_cell_timeout = 120
    # Before a kernel starts: one thread, so that stored numbers come out again, and nothing is fetched.
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.pop("GRPO_LAB_FAST", None)  # what is stored is the whole chapter
    # What is stored was computed on the CPU; GRPO_LAB_TEST_CUDA=0 lets the first GPU in, and numbers may then differ.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("GRPO_LAB_TEST_CUDA", "")
    # This checkout's package, installed or not, from whatever folder pytest was called.
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    config.stash[HOMES] = tempfile.mkdtemp(prefix="grpo-lab-notebooks-")


def pytest_unconfigure(config):
    if HOMES in config.stash:
        shutil.rmtree(config.stash[HOMES], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Before a notebook's kernel starts: a progress folder of its own, not the learner's, not another chapter's."""
    if HOMES in item.config.stash and item.path.suffix == ".ipynb":
        home = Path(item.config.stash[HOMES], item.path.stem)
        home.mkdir(exist_ok=True)
        os.environ["GRPO_LAB_HOME"] = str(home)
        os.environ["IPYTHONDIR"] = str(home / "ipython")  # no start-up files of the person who runs this
