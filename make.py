#!/usr/bin/env python3
"""Every command of the course, in one file of standard library: `make lab` and `python make.py lab` are the same.

`lab` and `test` set themselves up: they make .venv beside this file, install the packages of pyproject.toml in the
versions of constraints.txt, and leave a stamp, so that a second run installs nothing and needs no network.
"""

import sys

# This file keeps to old syntax, so that an old Python gets as far as this message.
if sys.version_info < (3, 11):  # noqa: UP036
    import shutil

    newer = [name for name in ("python3.13", "python3.12", "python3.11") if shutil.which(name)]
    hint = f"make PYTHON={newer[0]} lab, or {newer[0]} make.py lab" if newer else "install a newer one first"
    sys.exit(f"The course needs Python 3.11 or newer; this is {sys.version.split()[0]}. Try: {hint}.")

import contextlib
import difflib
import hashlib
import importlib.util
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import tomllib
import webbrowser
from pathlib import Path

ROOT = Path(__file__).resolve().parent
SETTINGS = {
    "PORT": "lab: the port of JupyterLab (8888, or the next free one)",
    "WORKERS": "test: how many processes (one a core, at most 4)",
    "FIX": "lint: FIX=1 mends what can be mended",
    "HERE": "HERE=1 uses the Python that runs this file and installs nothing (conda, Colab)",
    "ARGS": "more words for the tool behind the target, as in ARGS='-k gae'",
}
GIVEN = {}  # the words NAME=value of this command; they go before the environment


class Stop(Exception):
    """Ends the command with a message for the person at the keyboard, without a traceback."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


def say(text=""):
    print(text, flush=True)


# --- the environment -------------------------------------------------------------------------------------------------


def venv_python(venv):
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fingerprint_of_packages(root):
    """A hash of what decides which packages are installed. A change of the lint rules, say, doesn't count."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    tables = {name: project.get(name) for name in ("build-system", "project")}
    tables["setuptools"] = project.get("tool", {}).get("setuptools")
    text = json.dumps(tables, sort_keys=True) + (root / "constraints.txt").read_text(encoding="utf-8")
    return hashlib.sha256(text.encode()).hexdigest()


def read_json(path):
    """The content, or None where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write_json(path, content):
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(part, path)


def plan(stamp, version, extras, *, packages, root, cut_short):
    """What has to be done: ("nothing" | "install" | "make anew", why).

    stamp: what the last set-up left in .venv, or None. version: of the Python in .venv, or None where there is none
    that works. extras: names from pyproject.toml that are needed now. packages: fingerprint_of_packages.
    """
    if cut_short:
        return "make anew", "the last set-up was cut short"
    if version is None:
        return "make anew", "no working .venv yet"
    if stamp is None:
        return "install", "no finished set-up in .venv yet"
    if stamp.get("root") != root:
        return "make anew", "this folder was moved or copied"
    if stamp.get("python") != version:
        return "make anew", "its Python changed from {} to {}".format(stamp.get("python"), version)
    if stamp.get("packages") != packages:
        return "install", "pyproject.toml or constraints.txt changed"
    missing = sorted(set(extras) - set(stamp.get("extras", ())))
    if missing:
        return "install", "the packages of [{}] are needed too".format(", ".join(missing))
    return "nothing", ""


def version_in(venv):
    """The version of a venv's Python, or None where it or its pip doesn't work."""
    code = "import sys, pip; print('%d.%d.%d' % sys.version_info[:3])"
    try:
        command = [str(venv_python(venv)), "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


@contextlib.contextmanager
def one_at_a_time(path):
    """Two set-ups at once would spoil .venv: the second waits. The lock ends with the process that holds it."""
    with open(path, "a") as file:
        for attempt in itertools.count():
            try:
                if os.name == "nt":
                    import msvcrt

                    file.seek(0)
                    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                else:
                    import fcntl

                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if attempt == 0:
                    say("Another set-up is at work in this folder; waiting for it.")
                time.sleep(1)
        yield


def make_venv(venv):
    # Never a venv's own Python: it may be the one that is replaced.
    base = getattr(sys, "_base_executable", None) or sys.executable
    done = subprocess.run([base, "-m", "venv", "--clear", str(venv)], capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        if "ensurepip" in said and "apt" in said:
            raise Stop(
                "This Python came without venv. On Debian or Ubuntu: sudo apt install python3-venv\n"
                "Then run the same command again."
            )
        raise Stop("Could not make .venv:\n" + said)


class Pip:
    """One `pip install`, told in few lines; everything pip says goes to a log. `writing`: it began to change files."""

    def __init__(self, python, log):
        self.log, self.writing = log, False
        self.command = [str(python), "-m", "pip", "--no-input", "--disable-pip-version-check", "install"]

    def install(self, *words):
        tail, looked_at, shown = [], 0, ""
        output = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "encoding": "utf-8",
            "errors": "replace",
        }
        process = subprocess.Popen([*self.command, *words], cwd=ROOT, **output)
        try:
            with open(self.log, "w", encoding="utf-8") as log:
                for line in process.stdout:
                    log.write(line)
                    log.flush()
                    tail = [*tail[-11:], line.rstrip()]
                    looked_at += line.startswith(("Collecting ", "Processing ", "Requirement already"))
                    self.writing = self.writing or line.startswith("Installing collected packages")
                    shown = self.show(line, looked_at, shown)
            code = process.wait()
        except BaseException:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)  # Ctrl-C reaches pip too: let it tidy up
            process.kill()
            raise
        if sys.stdout.isatty():
            print("\r\033[K", end="", flush=True)
        if code:
            raise Stop("\n".join(["pip could not finish. Its last lines:", "", *tail]))

    def show(self, line, looked_at, shown):
        large = re.match(r" *Downloading (\S+) \((\d{2,}\.\d [MG]B)\)", line)
        if self.writing and line.startswith("Installing collected packages"):
            text = "  unpacking {} packages".format(line.count(",") + 1)
        elif large:
            text = f"  downloading {large[1]} ({large[2]})"
        elif sys.stdout.isatty() and not self.writing:
            text = f"  {looked_at} packages looked at"
        else:
            return shown
        if sys.stdout.isatty():
            print("\r\033[K" + text[:100], end="", flush=True)
        elif text != shown:
            say(text)
        return text


def ensure(extras=()):
    """The Python to use, its packages installed. Does nothing, and needs no network, where the stamp says so."""
    if setting("HERE") == "1":
        if importlib.util.find_spec("jupyterlab") is None:
            install = f"{sys.executable} -m pip install -e . -c constraints.txt"
            raise Stop(f"HERE=1 uses this Python, but the course is not installed in it. First: {install}")
        return sys.executable
    venv, incomplete = ROOT / ".venv", ROOT / ".venv-incomplete"
    stamp_path, python = venv / ".grpo-lab.json", venv_python(venv)
    with one_at_a_time(ROOT / ".venv-lock"):
        packages, stamp = fingerprint_of_packages(ROOT), read_json(stamp_path)
        wanted = sorted(set(extras) | set(stamp.get("extras", ()) if stamp else ()))
        action, why = plan(
            stamp, version_in(venv), extras, packages=packages, root=str(ROOT), cut_short=incomplete.exists()
        )
        if action == "nothing":
            return str(python)
        say(f"Setting up .venv ({why}). This takes minutes and needs the network, once.")
        started, pip = time.monotonic(), Pip(python, ROOT / ".venv-pip.log")
        if shutil.disk_usage(ROOT).free < 3e9:
            say("  less than 3 GB are free here; set-up takes 1.5 GB, and 6 GB where torch comes with CUDA")
        incomplete.write_text(
            "A set-up is at work, or was cut short. The next one then starts anew.\n", encoding="utf-8"
        )
        if action == "make anew":
            make_venv(venv)
        try:
            target = ".[{}]".format(",".join(wanted)) if wanted else "."
            pip.install("-e", target, "-c", "constraints.txt")
        except BaseException as error:
            untouched = (
                not pip.writing
            )  # failed or stopped before it changed a file: what was there is as it was
            if untouched:
                incomplete.unlink()
            if not isinstance(error, Stop):
                raise
            enough = stamp and set(extras) <= set(stamp.get("extras", ()))
            if enough and untouched and action == "install":
                say(f"{error}\n\nThe update failed; going on with the packages that are there.")
                return str(python)
            raise Stop(
                f"{error}\n\nThe whole log: .venv-pip.log. Most often the network is away or the disk is full.\n"
                "Then run the same command again."
            ) from None
        new = {"root": str(ROOT), "python": version_in(venv), "packages": packages, "extras": wanted}
        write_json(stamp_path, new)
        incomplete.unlink()
        say(f"Set up in {time.monotonic() - started:.0f} s.")
    return str(python)


def run(command, *, asks_back=False, **more):
    """The exit code. Ctrl-C goes to the command, which knows best how to end; a third one ends it.

    asks_back: the command may be asked to stop and go on all the same, as JupyterLab does.
    """
    process = subprocess.Popen([str(word) for word in command], cwd=ROOT, env={**os.environ, **more})
    for pressed in itertools.count():
        try:
            code = process.wait()
        except KeyboardInterrupt:
            if pressed == 2:
                process.terminate()
            continue
        if pressed and not asks_back:
            raise KeyboardInterrupt
        return code


# --- the learner's copy ----------------------------------------------------------------------------------------------


def fingerprint_of_chapter(path):
    """A hash of what a chapter says: its cells' sources. Outputs and counts change with each run and don't count."""
    content = path.read_bytes()
    if path.suffix == ".ipynb":
        with contextlib.suppress(ValueError, KeyError, TypeError):
            cells = [[cell["cell_type"], "".join(cell["source"])] for cell in json.loads(content)["cells"]]
            content = json.dumps(cells).encode()
    return hashlib.sha256(content).hexdigest()


def put_new(path, content):
    """Writes a file that must not exist yet, whole or not at all; FileExistsError otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(content)
        try:
            os.link(part, path)  # unlike a rename, a link never replaces what is there
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with open(path, "xb") as file:
                file.write(content)
    finally:
        part.unlink(missing_ok=True)


def put_beside(path, content):
    for number in itertools.count(1):
        beside = path.with_name(f"{path.stem}.new-{number}{path.suffix}")
        with contextlib.suppress(FileExistsError):
            put_new(beside, content)
            return beside


def copy_chapters(chapters, work):
    """Gives the learner each chapter once. A file that is there is never written over, whatever happened to it.

    Returns (names added, {name: name of the newer version put beside it}). work/.chapters.json remembers which
    versions were handed over, so that a newer one is given once, and one that the learner deleted stays deleted. To
    get a fresh copy of a chapter, delete or rename yours.
    """
    if os.path.lexists(work) and not work.is_dir():
        raise Stop(f"{work} is in the way: the course keeps your notebooks in a folder of that name.")
    work.mkdir(exist_ok=True)
    ledger_path = work / ".chapters.json"
    ledger = read_json(ledger_path) or {}
    added, newer = [], {}
    for source in sorted(chapters.rglob("*")):
        inside = source.relative_to(chapters)
        hidden = any(part.startswith((".", "__")) for part in inside.parts) or inside.parts[0] == "src"
        if hidden or not source.is_file():
            continue
        name, target, version = inside.as_posix(), work / inside, fingerprint_of_chapter(source)
        given = ledger.setdefault(name, [])
        if not os.path.lexists(target):
            put_new(target, source.read_bytes())
            added.append(name)
        elif version in given:
            continue
        elif not (target.is_file() and fingerprint_of_chapter(target) == version):
            newer[name] = put_beside(target, source.read_bytes()).relative_to(work).as_posix()
        if version not in given:
            given.append(version)
        write_json(ledger_path, ledger)
    return added, newer


def tell_chapters(added, newer):
    if len(added) > 3:
        say(f"Copied {len(added)} files to work/. They are yours: `make lab` never writes over them.")
    else:
        for name in added:
            say(f"New in work/: {name}. It is yours: `make lab` never writes over it.")
    for name, beside in newer.items():
        say(f"{name} has changed since you got it. Yours is as it was; the new one is work/{beside}.")


# --- targets ---------------------------------------------------------------------------------------------------------


def setting(name):
    return GIVEN.get(name, os.environ.get(name, "")).strip()


def port_is_free(port):
    with socket.socket() as server:
        if os.name != "nt":  # there it would allow a second server on the same port
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose_port(text):
    """PORT as a number; without one the first free port from 8888."""
    if not text:
        return next((port for port in range(8888, 8988) if port_is_free(port)), 8888)
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise Stop(f"PORT is a number from 1 to 65535, as in PORT=8890; got {text!r}.", 2)
    if not port_is_free(int(text)):
        raise Stop(
            f"Port {text} is taken. Is JupyterLab open already? Else choose another: PORT={int(text) + 1}."
        )
    return int(text)


def has_browser():
    if os.environ.get("BROWSER"):
        return True
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False  # only a text browser could start here, and JupyterLab needs more
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def tell_when_open(port, address):
    for _ in range(600):
        time.sleep(0.2)
        if not port_is_free(port):
            say(f"JupyterLab is open at {address}")
            say(
                "It shows by itself where there is a browser; else open that address. Stop it here with Ctrl-C, twice."
            )
            return


def no_questions(venv):
    """Keeps JupyterLab from asking, over the first chapter, whether it may fetch news; it asks the network nothing."""
    path = venv / "share/jupyter/lab/settings/overrides.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        quiet = {"fetchNews": "false", "checkForUpdates": False}
        write_json(path, {"@jupyterlab/apputils-extension:notification": quiet})


def lab(words):
    """set up, copy the chapters once into work/, open JupyterLab there"""
    port = choose_port(setting("PORT"))
    python, work, chapters = ensure(), ROOT / "work", ROOT / "chapters"
    added, newer = copy_chapters(chapters, work)
    tell_chapters(added, newer)
    if not any(chapters.glob("*.ipynb")):
        say("This copy of the course has no chapters yet: JupyterLab opens on work/, which is empty.")
    first = "00_the_loop.ipynb"
    page = "/lab/tree/" + first if first in added else "/lab"  # later JupyterLab opens what was open last
    token = secrets.token_hex(16)
    ours = [f"--ServerApp.root_dir={work}", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    ours += [f"--LabApp.default_url={page}", "--ServerApp.log_level=WARN", "--LabApp.log_level=WARN"]
    if not has_browser():
        ours.append("--ServerApp.open_browser=False")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        ours.append("--allow-root")  # in a container one is root, and Jupyter would refuse
    asked = {
        word.partition("=")[0] for word in words
    }  # Jupyter takes each option once: the person's own counts
    command = [python, "-m", "jupyterlab", *(o for o in ours if o.partition("=")[0] not in asked), *words]
    if setting("HERE") != "1":
        no_questions(ROOT / ".venv")
    address = f"http://127.0.0.1:{port}{page}?token={token}"
    threading.Thread(target=tell_when_open, args=(port, address), daemon=True).start()
    # One thread a kernel, as in tests: the models are small, and threads that wait for a busy core (a browser is
    # enough) make an update many times slower. The person's own OMP_NUM_THREADS counts.
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or "1"}
    # The token goes through the environment: a command line can be read by others on the machine.
    code = run(command, asks_back=True, JUPYTER_TOKEN=token, **threads)
    say("JupyterLab has ended. Your notebooks are in work/.")
    return code


def offline():
    """The environment of tests: one thread a process, and nothing is fetched."""
    return {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def workers():
    text = setting("WORKERS") or str(min(4, os.cpu_count() or 1))
    if not (text.isascii() and text.isdigit()):
        raise Stop(f"WORKERS is a number, as in WORKERS=2; got {text!r}.", 2)
    # loadscope keeps the cells of one notebook in one process; the other ways of xdist tear them apart
    return ["-n", text, "--dist", "loadscope"] if int(text) > 1 else []


def lint_commands(python, fix=False):
    ruff = [python, "-m", "ruff"]
    if fix:
        return [[*ruff, "check", "--fix", "."], [*ruff, "format", "."]]
    return [[*ruff, "check", "."], [*ruff, "format", "--check", "."]]


def test(words):
    """set up, then lint, tests and every notebook (ARGS='-k gae' runs only those tests)"""
    parallel = workers()
    python = ensure(["test"])
    pytest = [python, "-m", "pytest"]
    if words:
        return run([*pytest, *words], **offline())
    steps = {"lint": lint_commands(python), "tests": [[*pytest, *parallel, "tests"]]}
    if any((ROOT / "chapters").glob("*.ipynb")):
        # stored outputs are compared on Linux, where they were made; elsewhere the cells must run
        how = "--nbval" if sys.platform.startswith("linux") else "--nbval-lax"
        steps["notebooks"] = [[*pytest, how, *parallel, "chapters"]]
    rows = []
    for name, commands in steps.items():
        say(f"\n== {name} ==")
        started, codes = time.monotonic(), []
        for command in commands:
            codes.append(run(command, **offline()))
        rows.append((name, max(map(abs, codes)), time.monotonic() - started))
    say()
    for name, code, seconds in rows:
        say("{:<10} {:<7} {:6.0f} s".format(name, "FAILED" if code else "ok", seconds))
    if "notebooks" not in steps:
        say("notebooks  none yet")
    return 1 if any(code for _, code, _ in rows) else 0


def setup(words):
    """make .venv with everything that tests need"""
    python = ensure(["test"])
    say(f"Ready: {python}")
    return 0


def lint(words):
    """check style and formatting (FIX=1 mends)"""
    python = ensure(["test"])
    return max([run([*command, *words]) for command in lint_commands(python, setting("FIX") == "1")])


def chapters(words):
    """build the notebooks from chapters/src and execute what changed"""
    return run([ensure(["test"]), "-m", "tools.chapters", *words], **offline())


def reproduce(words):
    """run every recorded experiment again (hours; resumable)"""
    return run([ensure(), "-m", "grpo_lab.cli", "reproduce", *words], **offline())


def bench(words):
    """speed side by side with the peers; ends with one line of JSON"""
    return run([ensure(["test"]), "-m", "benchmarks.run", *words], **offline())


def site(words):
    """build the static site into site/"""
    return run([ensure(["docs"]), "-m", "sphinx", "-W", "--keep-going", "-b", "html", "docs", "site", *words])


def setup_lm(words):
    """add the small real language model of chapter 15 (93 MB)"""
    return run([ensure(), "tools/setup_lm.py", *words])


def pins(words):
    """resolve the versions of constraints.txt anew, in a fresh environment"""
    path = ROOT / "constraints.txt"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    head = path.read_text(encoding="utf-8").split("# -- resolved")[0]
    chosen = [line.split("#")[0].strip() for line in head.splitlines() if "==" in line.split("#")[0]]
    asked = [*chosen, *project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        make_venv(venv)
        python = venv_python(venv)
        Pip(python, Path(folder) / "log").install(*asked)
        if run([python, "-m", "pip", "check"]):
            raise Stop("These versions don't fit together; constraints.txt is as it was.")
        frozen = subprocess.run(
            [str(python), "-m", "pip", "freeze"], capture_output=True, text=True, check=True
        ).stdout
        version = version_in(venv)
    resolved = resolved_pins(frozen, chosen)
    line = f"# -- resolved by `make pins` with Python {version} on {sys.platform} --"
    path.write_text("\n".join([head.rstrip(), "", line, *resolved, ""]), encoding="utf-8")
    say(f"{path.name}: {len(chosen)} chosen, {len(resolved)} resolved. Now: make test")
    return 0


def resolved_pins(frozen, chosen):
    """`pip freeze` without the chosen ones, local builds (+cpu) and places on disk."""
    names = {canonical(pin) for pin in chosen}
    lines = [re.split(r" @ |==", line.strip()) for line in frozen.splitlines() if re.match(r"\w", line)]
    unknown = [line[0] for line in lines if len(line) != 2 or "/" in line[1]]
    unknown = [name for name in unknown if canonical(name) not in names]
    if unknown:
        raise Stop("pip names no version for {}; constraints.txt is as it was.".format(", ".join(unknown)))
    keep = [line for line in lines if canonical(line[0]) not in names]
    return ["{}=={}".format(name, version.split("+")[0]) for name, version in keep]


def canonical(requirement):
    """The name in a requirement, as pip compares names."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def clean(words):
    """remove .venv, caches and built pages; work/ and your results stay"""
    names = [
        ".venv",
        ".venv-incomplete",
        ".venv-lock",
        ".venv-pip.log",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
    ]
    paths = [ROOT / name for name in [*names, "build", "site"]] + list(ROOT.glob("*.egg-info"))
    for folder in ("grpo_lab", "tests", "benchmarks", "tools", "chapters"):
        paths += (ROOT / folder).rglob("__pycache__")
    paths += ROOT.glob("__pycache__")
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()
    say("Removed .venv, caches and built pages. work/ is as it was.")
    return 0


def show_help(words=()):
    """this list"""
    say("make TARGET, or: python make.py TARGET\n")
    for name, target in TARGETS.items():
        say("  {:<10} {}{}".format(name, target.__doc__, "" if is_built(name) else "  [not built yet]"))
    say("\nSettings, after the target or in the environment:\n")
    for name, text in SETTINGS.items():
        say(f"  {name:<10} {text}")
    return 0


TARGETS = {
    "lab": lab,
    "test": test,
    "setup": setup,
    "chapters": chapters,
    "reproduce": reproduce,
    "bench": bench,
    "site": site,
    "setup-lm": setup_lm,
    "lint": lint,
    "pins": pins,
    "clean": clean,
    "help": show_help,
}
# A target whose part comes later: the file that brings it, and a word that must stand in it.
PARTS = {
    "chapters": ("tools/chapters.py", ""),
    "reproduce": ("grpo_lab/cli.py", "reproduce"),
    "bench": ("benchmarks/run.py", ""),
    "site": ("docs/conf.py", ""),
    "setup-lm": ("tools/setup_lm.py", ""),
}


def is_built(name):
    path, word = PARTS.get(name, ("make.py", ""))
    return (ROOT / path).is_file() and word in (ROOT / path).read_text(encoding="utf-8")


def require_setting(name):
    if name not in SETTINGS:
        raise Stop("There is no setting {}. There are: {}.".format(name, ", ".join(SETTINGS)), 2)


def settings_of_make(flags):
    """The names of the settings on make's own command line, which reach this file as environment variables only."""
    return re.findall(r"(?:^|(?<!\\)\s)([A-Z]+)=", flags.partition("-- ")[2])


def read_words(words):
    """(target, settings NAME=value, the rest: words for the tool behind the target)"""
    target, rest, given = None, [], {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[A-Z]+", name):
            require_setting(name)
            given[name] = value
        elif target is None:
            target = {"-h": "help", "--help": "help"}.get(word, word)
        else:
            rest.append(word)
    if target is None:
        target = "help"
    if target not in TARGETS:
        near = difflib.get_close_matches(target, TARGETS, n=1)
        ask = f" Did you mean {near[0]}?" if near else ""
        raise Stop("There is no target {}.{} There are: {}.".format(target, ask, ", ".join(TARGETS)), 2)
    return target, given, rest


def main(words):
    try:
        target, given, rest = read_words(words)
        for name in settings_of_make(os.environ.get("MAKEFLAGS", "")):
            if name != "PYTHON":
                require_setting(name)
        GIVEN.update(given)
        if not is_built(target):
            raise Stop(f"`make {target}` is not built yet: {PARTS[target][0]} comes with a later part.")
        return TARGETS[target]([*rest, *shlex.split(setting("ARGS"))])
    except KeyboardInterrupt:
        say("\nStopped. The same command goes on from here.")
        return 130
    except Stop as stop:
        print(stop, file=sys.stderr, flush=True)
        return stop.code
    except OSError as error:
        print(f"make.py: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
