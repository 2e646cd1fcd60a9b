"""Settings of notebooks under pytest, so that a bare `pytest --nbval chapters/x.ipynb` works as `make test` does.

The settings of the tests are in tests/conftest.py.
"""

import os


def pytest_configure(config):
    if not (getattr(config.option, "nbval", False) or getattr(config.option, "nbval_lax", False)):
        return
    config.option.nbval_current_env = True  # this Python, whatever kernel name a notebook was saved with
    if config.option.nbval_cell_timeout == 2000:  # nbval's own default: a dead kernel would cost half an hour
        config.option.nbval_cell_timeout = 120
    # Before a kernel starts: one thread, so that stored numbers come out again, and nothing is fetched.
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
