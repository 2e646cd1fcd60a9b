"""Progress: one file, two writers, never lost, never in the way of a lesson."""

import json
import os
import subprocess
import sys

import pytest

from grpo_lab.teach import progress
from grpo_lab.teach.probes import PROBES


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_LAB_HOME", str(tmp_path))
    monkeypatch.setattr(progress, "_said", set())
    return tmp_path


def test_without_a_file_nothing_is_done_and_nothing_is_written(home):
    assert progress.load() == {"checks": {}, "bets": {}, "questions": {}}
    assert list(home.iterdir()) == []


def test_what_is_recorded_is_loaded_and_replaced_by_name():
    assert progress.record("checks", "gae", {"passed": True})
    assert progress.record("bets", "05-dead", {"bet": "3", "right": False})
    assert progress.record("bets", "05-dead", {"bet": "4", "right": True})
    assert progress.load() == {
        "checks": {"gae": {"passed": True}},
        "bets": {"05-dead": {"bet": "4", "right": True}},
        "questions": {},
    }


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="checks, bets, questions"):
        progress.record("prizes", "x", {})


def test_the_users_data_folder_is_the_default(monkeypatch):
    monkeypatch.delenv("GRPO_LAB_HOME")
    assert "grpo-lab" in str(progress.path())


def test_two_processes_writing_at_once_lose_nothing(home):
    script = (
        "import sys\n"
        "from grpo_lab.teach import progress\n"
        "for i in range(40):\n"
        "    assert progress.record('bets', f'{sys.argv[1]}-{i}', {'right': True})\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, name], env=os.environ) for name in ("one", "two")
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert set(progress.load()["bets"]) == {f"{name}-{i}" for name in ("one", "two") for i in range(40)}
    assert sorted(path.name for path in home.iterdir() if path.suffix == ".json") == ["progress.json"]


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{half",
        b"\xff\xfe\x00",
        b"[1, 2]",
        b"3",
        b'{"version": 1, "checks": 3}',
        b'{"version": 1, "bets": {"a": 1}}',
    ],
)
def test_a_file_that_cannot_be_read_is_kept_aside(home, broken, capsys):
    progress.path().write_bytes(broken)
    assert progress.load()["checks"] == {}
    assert progress.record("checks", "gae", {"passed": True})
    assert (home / "progress.unreadable-1.json").read_bytes() == broken
    assert progress.load()["checks"] == {"gae": {"passed": True}}
    assert "kept as progress.unreadable-1.json" in capsys.readouterr().out


def test_a_second_broken_file_does_not_overwrite_the_first(home):
    for text in ("first", "second"):
        progress.path().write_text(text, encoding="utf-8")
        progress.record("checks", "gae", {"passed": True})
    assert (home / "progress.unreadable-1.json").read_text(encoding="utf-8") == "first"
    assert (home / "progress.unreadable-2.json").read_text(encoding="utf-8") == "second"


@pytest.mark.parametrize("version", [0, 7])
def test_a_file_of_another_version_is_kept_and_taken_over(home, version):
    old = {"version": version, "checks": {"k1": {"passed": True}}, "later": {"x": {"y": 1}}}
    progress.path().write_text(json.dumps(old), encoding="utf-8")
    progress.record("checks", "gae", {"passed": True})
    assert json.loads((home / f"progress.version-{version}-1.json").read_text(encoding="utf-8")) == old
    assert progress.load()["checks"] == {"k1": {"passed": True}, "gae": {"passed": True}}


def test_a_folder_that_cannot_be_written_is_said_once_and_stops_nothing(home, monkeypatch, capsys):
    blocked = home / "file"
    blocked.write_text("", encoding="utf-8")
    monkeypatch.setenv(
        "GRPO_LAB_HOME", str(blocked / "below")
    )  # a folder below a file can't be made, even by root
    assert not progress.record("checks", "gae", {"passed": True})
    assert not progress.record("checks", "k1", {"passed": True})
    assert capsys.readouterr().out.count("can't be noted") == 1
    assert progress.load()["checks"] == {}
    assert f"0 of {len(PROBES)}" in repr(progress.show())


def test_a_lock_that_is_held_is_not_waited_for_for_ever(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    progress.record("checks", "k1", {"passed": True})
    with progress.FileLock(progress.path().with_suffix(".lock")):
        script = (
            "from grpo_lab.teach import progress\n"
            "progress.PATIENCE = 0.01\n"
            "assert not progress.record('checks', 'gae', {'passed': True})\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "another notebook" in done.stdout
    assert set(progress.load()["checks"]) == {"k1"}


def test_the_report_counts_and_lists_what_is_missing():
    progress.record("checks", "gae", {"passed": True})
    progress.record("questions", "05-1", {"right": False})
    report = progress.show(["gae", "k1"])
    assert repr(report).splitlines() == [
        "exercises passed     ##########.......... 1 of 2",
        "bets won             .................... 0 of 0",
        "questions right      .................... 0 of 1",
    ]
    html = report._repr_mimebundle_()["text/html"]
    assert "still to write: 1" in html and "k1" in html and 'aria-label="bets won"' in html


def test_reset_puts_the_file_aside(home):
    assert progress.reset() is None
    progress.record("checks", "gae", {"passed": True})
    assert progress.reset().name == "progress.before-reset-1.json"
    assert progress.load()["checks"] == {}
