"""Settings for all tests: offline, one thread, nothing written outside a temporary folder.

The environment is set when this file is read, before anything imports transformers or starts a kernel, and a
kernel or subprocess started by a test inherits it.
"""

import atexit
import os
import shutil
import tempfile

HOME = tempfile.mkdtemp(prefix="grpo-lab-tests-")
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

os.environ["GRPO_LAB_HOME"] = HOME  # progress and caches of the course
os.environ["HF_HOME"] = os.path.join(HOME, "huggingface")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get(
    "GRPO_LAB_TEST_CUDA", ""
)  # numbers are compared on the CPU

import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

torch.set_num_threads(1)

# The same examples on every machine and in every run, and no stop-watch: a busy machine must not fail a test.
settings.register_profile(
    "course", derandomize=True, deadline=None, database=None, max_examples=40, report_multiple_bugs=False
)
settings.load_profile("course")

# ---- notebooks (nbval) -----------------------------------------------------------------------------------
# Options for `pytest --nbval chapters/` belong here: sanitiser file, cell timeout, current environment.
