"""The project's own files agree with each other, and make.py does what it says. Nothing here needs a network."""

import ast
import http.client
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
BASE = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}


def pins():
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return dict(line.split("==") for line in lines if line)


@pytest.fixture
def make(monkeypatch, tmp_path):
    """make.py as a module whose root is an empty folder, without settings from this environment."""
    spec = importlib.util.spec_from_file_location("course_make", ROOT / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in module.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


# --- the three lists -------------------------------------------------------------------------------------------------


def test_constraints_are_exact_releases_without_local_builds_or_places():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r"[\w.-]+==[\w.!]+( +#.*)?", line), line


@pytest.mark.parametrize("line", [*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["docs"]])
def test_every_dependency_is_pinned_inside_its_range(line):
    wanted = Requirement(line)
    tested = {canonicalize_name(name): version for name, version in pins().items()}
    assert canonicalize_name(wanted.name) in tested, f"{wanted.name} is missing: make pins"
    assert tested[canonicalize_name(wanted.name)] in wanted.specifier


def test_every_dependency_says_why_it_is_there():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    lines = [line for line in lists.splitlines() if line.startswith('  "')]
    assert len(lines) == len(PROJECT["dependencies"]) + sum(map(len, EXTRAS.values()))
    assert [line for line in lines if "# " not in line] == []


def test_a_learner_installs_no_peer_and_no_developer_tool():
    assert BASE.isdisjoint({"trl", "torchrl", "jupytext", "nbval", "pytest"})


def test_environment_yml_points_at_the_other_two():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *plain, last = environment["dependencies"]
    assert plain == ["python" + PROJECT["requires-python"], "pip"]
    assert last == {"pip": ["-e .", "-c constraints.txt"]}


def test_python_versions_agree(make):
    oldest = PROJECT["requires-python"].removeprefix(">=")
    text = (ROOT / "make.py").read_text(encoding="utf-8")
    assert f"sys.version_info < ({oldest.replace('.', ', ')})" in text
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert tools["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert oldest in workflow["jobs"]["linux"]["strategy"]["matrix"]["python"]
    assert f"Python {oldest} or newer" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_versions_agree():
    import grpo_lab

    assert grpo_lab.__version__ == PROJECT["version"]


def imported(path):
    """Top-level names of all absolute imports in a file, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("folder", ["grpo_lab", "chapters/src"])
def test_imports_are_within_the_base_list(folder):
    homes = importlib.metadata.packages_distributions()
    outside = set()
    for path in (ROOT / folder).rglob("*.py"):
        for name in set(imported(path)) - sys.stdlib_module_names - {"grpo_lab"}:
            if BASE.isdisjoint(map(canonicalize_name, homes.get(name, [name]))):
                outside.add((path.relative_to(ROOT).as_posix(), name))
    assert outside == set(), "a learner does not have these; add them to `dependencies` or leave them out"


# --- the files -------------------------------------------------------------------------------------------------------


def project_files():
    """What git tracks or would track; without git, what lies outside ignored and hidden folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    leave = {"work", "runs", "out", "site", "build", "dist", "__pycache__"}
    kept = (path for path in ROOT.rglob("*") if path.is_file())
    return [
        p for p in kept if not any(s.startswith(".") or s in leave for s in p.relative_to(ROOT).parts[:-1])
    ]


def test_no_file_is_large_or_pickled():
    pickled = {".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".npy"}
    assert [p for p in project_files() if p.suffix in pickled] == [], (
        "weights are safetensors, curves are CSV"
    )
    assert [p for p in project_files() if p.stat().st_size > 1_000_000] == []


def test_no_file_carries_a_path_of_one_machine():
    places = "|".join(["home", "Users", "root", "work", "tmp", "opt", "farm"])
    machine_path = re.compile(rf"(?<![\w.~$\}}>*-])/({places})/[\w.]|[A-Z]:\\Users\\".encode())
    found = {}
    for path in project_files():
        content = path.read_bytes()
        if b"\0" not in content and (match := machine_path.search(content)):
            found[path.relative_to(ROOT).as_posix()] = content[max(0, match.start() - 30) : match.end() + 30]
    assert found == {}


def test_licence_is_the_whole_of_apache_2():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["license"] == "Apache-2.0"
    assert len(text.split()) == 1581 and text.rstrip().endswith("limitations under the License.")


def test_hooks_are_local():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repository["repo"] for repository in hooks["repos"]} == {"local"}


def test_ci_runs_what_the_readme_says():
    script = ROOT / ".ci/run"
    assert "runner=(make test)" in script.read_text(encoding="utf-8")
    assert os.name == "nt" or os.access(script, os.X_OK)
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert {"run": ".ci/run"} in jobs["linux"]["steps"]


# --- targets ---------------------------------------------------------------------------------------------------------


def test_makefile_and_make_py_have_the_same_targets(make):
    line = re.search(r"^TARGETS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert line.split() == list(make.TARGETS)


def mentioned_targets(text):
    """Targets in code spans and code blocks: prose may make do without any."""
    for code in re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL):
        yield from re.findall(r"\bmake(?:\.py)?(?: [A-Z]+=\S+)* ([a-z][a-z-]*)", code)


def test_every_make_target_that_is_mentioned_exists(make):
    files = [
        *ROOT.glob("*.md"),
        ROOT / "environment.yml",
        ROOT / "constraints.txt",
        ROOT / ".pre-commit-config.yaml",
    ]
    for path in files:
        text = path.read_text(encoding="utf-8")
        names = set(mentioned_targets(text if path.suffix == ".md" else f"```{text}```"))
        assert names <= set(make.TARGETS), path.name


def test_readme_says_of_each_target_whether_it_is_built(make, monkeypatch):
    monkeypatch.setattr(make, "ROOT", ROOT)
    rows = re.findall(
        r"^\| (.*) \| (built|not yet).* \|$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    said = {name: state == "built" for row, state in rows for name in mentioned_targets(row)}
    assert said == {name: make.is_built(name) for name in make.PARTS}


def test_readme_gives_the_two_commands_on_both_systems():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^make lab +#", text, re.MULTILINE) and re.search(r"^make test +#", text, re.MULTILINE)
    assert "`py make.py lab`" in text and "`py make.py test`" in text


def make_py(*words, **environment):
    command = [sys.executable, str(ROOT / "make.py"), *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )


def test_help_lists_every_target_and_setting(make):
    said = make_py("help")
    assert said.returncode == 0
    for name in [*make.TARGETS, *make.SETTINGS]:
        assert re.search(rf"^  {name} ", said.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lba"], "There is no target lba. Did you mean lab?"),
        (["lab", "PROT=1"], "There is no setting PROT. There are: PORT"),
        (["lab", "PORT=nine"], "PORT is a number from 1 to 65535, as in PORT=8890; got 'nine'."),
        (["lab", "PORT=70000"], "got '70000'"),
        (["test", "WORKERS=two"], "WORKERS is a number"),
    ],
)
def test_a_wrong_word_is_named_without_a_traceback(words, message):
    said = make_py(*words)
    assert said.returncode == 2
    assert message in said.stderr and "Traceback" not in said.stderr and said.stdout == ""


def test_the_port_may_also_come_from_the_environment():
    assert "got 'nine'" in make_py("lab", PORT="nine").stderr


@pytest.mark.parametrize("target", ["chapters", "reproduce", "bench", "site", "setup-lm"])
def test_a_target_whose_part_is_missing_says_so(make, capsys, target):
    assert make.main([target]) == 1
    assert f"`make {target}` is not built yet: {make.PARTS[target][0]}" in capsys.readouterr().err


def test_words_after_the_target_go_to_its_tool(make):
    assert make.read_words(["test", "-k", "gae", "PORT=1"]) == ("test", {"PORT": "1"}, ["-k", "gae"])
    assert make.read_words([]) == ("help", {}, [])
    assert make.read_words(["--help"])[0] == "help"


def test_ctrl_c_is_a_short_message(make, monkeypatch, capsys):
    def interrupted(words):
        raise KeyboardInterrupt

    monkeypatch.setitem(make.TARGETS, "lint", interrupted)
    monkeypatch.setattr(make, "is_built", lambda name: True)
    assert make.main(["lint"]) == 130
    assert capsys.readouterr().out.strip() == "Stopped. The same command goes on from here."


def test_an_old_python_gets_as_far_as_the_message():
    tree = ast.parse((ROOT / "make.py").read_text(encoding="utf-8"), feature_version=(3, 7))
    before = next(node for node in tree.body if isinstance(node, ast.If))
    assert [type(node) for node in tree.body[: tree.body.index(before)]] == [ast.Expr, ast.Import]


def test_a_taken_port_is_named(make):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(make.Stop, match=f"Port {port} is taken"):
            make.choose_port(str(port))


# --- the environment: made once, mended when cut short ---------------------------------------------------------------

STAMP = {"root": "here", "python": "3.11.7", "packages": "abc", "extras": ["test"]}


@pytest.mark.parametrize(
    ("stamp", "version", "extras", "changed", "action"),
    [
        (None, None, [], {}, "make anew"),
        (None, "3.11.7", [], {}, "install"),
        (STAMP, "3.11.7", [], {}, "nothing"),
        (STAMP, "3.11.7", ["test"], {}, "nothing"),
        (STAMP, "3.11.7", ["docs"], {}, "install"),
        (STAMP, "3.11.7", [], {"packages": "abd"}, "install"),
        (STAMP, "3.12.1", [], {}, "make anew"),
        (STAMP, None, [], {}, "make anew"),
        (STAMP, "3.11.7", [], {"root": "there"}, "make anew"),
        (STAMP, "3.11.7", [], {"cut_short": True}, "make anew"),
        ({}, "3.11.7", [], {}, "make anew"),
    ],
)
def test_what_a_set_up_has_to_do(make, stamp, version, extras, changed, action):
    state = {"packages": "abc", "root": "here", "cut_short": False} | changed
    assert make.plan(stamp, version, extras, **state)[0] == action


@pytest.fixture
def fake(make, monkeypatch, tmp_path):
    """A set-up in which only pip and venv are replaced; `log` is what they were asked, `fail` what pip raises."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    class Pip:
        log, fail, writing_when_it_fails = [], None, False

        def __init__(self, python, log):
            self.writing = False

        def install(self, *words):
            Pip.log.append(words[1])
            self.writing = Pip.fail is None or Pip.writing_when_it_fails
            if Pip.fail:
                raise Pip.fail

    def make_venv(venv):
        Pip.log.append("venv")
        venv.mkdir(exist_ok=True)

    monkeypatch.setattr(make, "Pip", Pip)
    monkeypatch.setattr(make, "make_venv", make_venv)
    monkeypatch.setattr(make, "version_in", lambda venv: "3.11.7" if venv.exists() else None)
    return Pip


def test_nothing_is_done_twice(make, fake):
    make.ensure()
    make.ensure()
    assert fake.log == ["venv", "."]
    make.ensure(["test"])
    make.ensure(["test"])
    make.ensure()
    assert fake.log == ["venv", ".", ".[test]"]


def test_a_change_of_lint_rules_installs_nothing_and_a_new_pin_does(make, fake, tmp_path):
    make.ensure(["test"])
    with open(tmp_path / "pyproject.toml", "a") as file:
        file.write("\n[tool.other]\nkey = 1\n")
    make.ensure(["test"])
    assert fake.log == ["venv", ".[test]"]
    with open(tmp_path / "constraints.txt", "a") as file:
        file.write("other==1\n")
    make.ensure()
    assert fake.log == ["venv", ".[test]", ".[test]"]


def test_a_set_up_that_was_killed_starts_anew(make, fake, tmp_path):
    fake.fail, fake.writing_when_it_fails = SystemExit("killed while pip was unpacking"), True
    with pytest.raises(SystemExit):
        make.ensure()
    fake.fail = None
    make.ensure()
    assert fake.log == ["venv", ".", "venv", "."]
    assert not (tmp_path / ".venv-incomplete").exists()


def test_a_set_up_stopped_while_it_downloads_goes_on_with_the_same_venv(make, fake):
    fake.fail = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        make.ensure()
    fake.fail = None
    make.ensure()
    assert fake.log == ["venv", ".", "."]


def test_an_update_without_network_goes_on_with_what_is_there(make, fake, tmp_path, capsys):
    make.ensure()
    with open(tmp_path / "constraints.txt", "a") as file:
        file.write("other==1\n")
    fake.fail = make.Stop("no network")
    assert make.ensure().endswith(("python", "python.exe"))
    assert "going on with the packages that are there" in capsys.readouterr().out
    with pytest.raises(make.Stop, match="the network is away"):
        make.ensure(["docs"])
    fake.fail = None
    make.ensure()
    assert fake.log == ["venv", ".", ".", ".[docs]", "."]


def test_here_uses_the_running_python(make, fake, monkeypatch):
    monkeypatch.setenv("HERE", "1")
    assert make.ensure(["test"]) == sys.executable
    monkeypatch.setattr(make.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        make.Stop, match="not installed in it. First: .* -m pip install -e . -c constraints.txt"
    ):
        make.ensure()
    assert fake.log == []


def test_pins_carry_no_local_build_and_no_place(make):
    frozen = "-e git+x\ntorch==2.13.0+cpu\nnumpy==2.4.6\njupyterlab_widgets==3.0.17\nother==1.2+cu130\n"
    assert make.resolved_pins(frozen, ["torch==2.13.0"]) == [
        "numpy==2.4.6",
        "jupyterlab_widgets==3.0.17",
        "other==1.2",
    ]
    with pytest.raises(make.Stop, match="no version for odd"):
        make.resolved_pins("odd @ file:///somewhere/odd.whl\n", [])


# --- the learner's copy ----------------------------------------------------------------------------------------------


def notebook(*sources, output=None):
    outputs = [{"output_type": "stream", "name": "stdout", "text": output}] if output else []
    cells = [{"cell_type": "code", "metadata": {}, "source": s, "outputs": outputs} for s in sources]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def course(make, tmp_path):
    """chapters/ with one chapter, and a function that copies it to work/."""
    (tmp_path / "chapters/src").mkdir(parents=True)
    (tmp_path / "chapters/src/00.py").write_text("# source\n")
    (tmp_path / "chapters/00.ipynb").write_text(notebook("a = 1"))
    return tmp_path, lambda: make.copy_chapters(tmp_path / "chapters", tmp_path / "work")


def test_chapters_are_copied_once(course):
    root, copy = course
    assert copy() == (["00.ipynb"], {})
    assert copy() == ([], {})
    assert sorted(p.name for p in (root / "work").iterdir()) == [".chapters.json", "00.ipynb"]


def test_a_learners_work_is_never_written_over(course):
    root, copy = course
    copy()
    mine = notebook("a = 'my own answer'")
    (root / "work/00.ipynb").write_text(mine)
    (root / "work/notes.md").write_text("mine")
    (root / "chapters/00.ipynb").write_text(notebook("a = 2"))
    assert copy() == ([], {"00.ipynb": "00.new-1.ipynb"})
    assert copy() == ([], {}), "a newer version is given once"
    assert (root / "work/00.ipynb").read_text() == mine
    assert (root / "work/notes.md").read_text() == "mine"
    assert (root / "work/00.new-1.ipynb").read_text() == notebook("a = 2")


def test_a_third_version_does_not_write_over_the_second(course):
    root, copy = course
    copy()
    (root / "work/00.new-1.ipynb").write_text("the learner took this name")
    for number in (2, 3):
        (root / "chapters/00.ipynb").write_text(notebook(f"a = {number}"))
        copy()
    assert (root / "work/00.new-1.ipynb").read_text() == "the learner took this name"
    assert (root / "work/00.new-2.ipynb").read_text() == notebook("a = 2")
    assert (root / "work/00.new-3.ipynb").read_text() == notebook("a = 3")


def test_new_chapters_are_added_and_new_outputs_are_no_news(course):
    root, copy = course
    copy()
    (root / "chapters/00.ipynb").write_text(notebook("a = 1", output="1"))
    (root / "chapters/img").mkdir()
    (root / "chapters/img/loop.png").write_bytes(b"\x89PNG")
    (root / "chapters/01.ipynb").write_text(notebook("b = 1"))
    assert copy() == (["01.ipynb", "img/loop.png"], {})
    assert (root / "work/img/loop.png").read_bytes() == b"\x89PNG"


def test_a_deleted_copy_comes_back_fresh_and_a_deleted_newer_one_does_not(course):
    root, copy = course
    copy()
    (root / "chapters/00.ipynb").write_text(notebook("a = 2"))
    copy()
    (root / "work/00.new-1.ipynb").unlink()
    assert copy() == ([], {})
    (root / "work/00.ipynb").unlink()
    assert copy() == (["00.ipynb"], {})
    assert (root / "work/00.ipynb").read_text() == notebook("a = 2")


@pytest.mark.parametrize("ledger", [None, "", "[1]", '{"00.ipynb": '])
def test_a_lost_ledger_costs_nothing(course, ledger):
    root, copy = course
    copy()
    path = root / "work/.chapters.json"
    path.unlink() if ledger is None else path.write_text(ledger)
    assert copy() == ([], {})
    path.unlink()
    (root / "work/00.ipynb").write_text(notebook("my own"))
    assert copy() == ([], {"00.ipynb": "00.new-1.ipynb"})
    assert (root / "work/00.ipynb").read_text() == notebook("my own")


def test_without_links_a_copy_is_still_never_written_over(course, make, monkeypatch):
    root, copy = course

    def no_links(source, target):
        raise OSError("not supported")

    monkeypatch.setattr(make.os, "link", no_links)
    assert copy() == (["00.ipynb"], {})
    with pytest.raises(FileExistsError):
        make.put_new(root / "work/00.ipynb", b"other")
    assert (root / "work/00.ipynb").read_text() == notebook("a = 1")
    assert not list((root / "work").glob("*.part")) and not list((root / "work").glob(".*.part"))


def test_a_file_named_work_is_left_alone(course, make):
    root, copy = course
    (root / "work").write_text("mine")
    with pytest.raises(make.Stop, match="in the way"):
        copy()
    assert (root / "work").read_text() == "mine"


def test_a_course_without_chapters_has_an_empty_work_folder(make, tmp_path):
    assert make.copy_chapters(tmp_path / "chapters", tmp_path / "work") == ([], {})
    assert (tmp_path / "work").is_dir()


def test_lab_opens_jupyterlab_on_the_copy(tmp_path):
    """The real JupyterLab, from a copy of make.py and one chapter; asked over HTTP, then shut down over HTTP."""
    shutil.copy(ROOT / "make.py", tmp_path)
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters/00_the_loop.ipynb").write_text(notebook("a = 1"))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    words = ["lab", "HERE=1", f"PORT={port}", "--ServerApp.open_browser=False"]
    own = {
        name: str(tmp_path / name)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "make.py", *words]
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **own}, **pipe) as process:
        try:
            said = ""
            while "Ctrl-C" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            assert "New in work/: 00_the_loop.ipynb" in said
            path, token = re.search(rf"http://127.0.0.1:{port}(\S+)\?token=(\w+)", said).groups()
            assert path == "/lab/tree/00_the_loop.ipynb"

            def ask(method, path, **headers):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request(method, path, headers=headers)
                answer = connection.getresponse()
                body = answer.read()
                connection.close()
                return answer.status, body

            allowed = {"Authorization": f"token {token}"}
            assert ask("GET", "/api/contents")[0] == 403, "nobody else on the machine gets in"
            status, body = ask("GET", "/api/contents", **allowed)
            assert status == 200 and [f["name"] for f in json.loads(body)["content"]] == ["00_the_loop.ipynb"]
            assert ask("GET", path, **allowed)[0] == 200
            assert ask("POST", "/api/shutdown", **allowed)[0] == 200
            rest = process.stdout.read()
            assert process.wait(60) == 0 and "Your notebooks are in work/." in rest
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize(("own", "given"), [(None, "1"), ("", "1"), ("4", "4")])
def test_kernels_of_lab_have_one_thread_unless_told_otherwise(make, monkeypatch, tmp_path, own, given):
    monkeypatch.setattr(make, "ROOT", tmp_path)
    monkeypatch.setattr(make, "ensure", lambda: sys.executable)
    monkeypatch.setattr(make, "tell_when_open", lambda port, address: None)
    if own is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", own)
    seen = []
    monkeypatch.setattr(make, "run", lambda command, *, asks_back, **more: seen.append(more) or 0)
    (tmp_path / "chapters").mkdir()
    assert make.lab([]) == 0
    assert seen[0]["OMP_NUM_THREADS"] == given


def test_a_second_set_up_waits_for_the_first(make, monkeypatch, tmp_path, capsys):
    """The lock is the system's: it is held by a process and ends with it."""
    hold = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('m', {str(ROOT / 'make.py')!r})\n"
        "m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m)\n"
        "with m.one_at_a_time(sys.argv[1]):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    lock = str(tmp_path / "lock")
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", hold, lock], **pipe) as process:
        assert process.stdout.readline().strip() == "held"
        waits = []

        def end_the_first(seconds):
            waits.append(seconds)
            process.communicate("")

        monkeypatch.setattr(make.time, "sleep", end_the_first)
        with make.one_at_a_time(lock):
            assert len(waits) == 1
    assert "waiting for it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "names"),
    [("", []), ("w", []), (" -- ARGS=-k\\ gae PORT=1", ["ARGS", "PORT"]), ("s -- ARG=-kgae", ["ARG"])],
)
def test_settings_on_makes_own_command_line_are_seen(make, flags, names):
    assert make.settings_of_make(flags) == names


def test_a_misspelt_setting_of_make_is_refused(make, monkeypatch, capsys):
    monkeypatch.setenv("MAKEFLAGS", " -- ARG=-kgae")
    assert make.main(["help"]) == 2
    assert "There is no setting ARG." in capsys.readouterr().err
