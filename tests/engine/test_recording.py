"""Recorded batches are what their modules make, read back whole, and errors say how to mend them."""

import os

import pytest
import torch

from grpo_lab.cli import main
from grpo_lab.engine import recording
from grpo_lab.engine.recording import FOLDER, codes_of, maker, read_recording, record, recordings, texts_of


@pytest.mark.parametrize("name", recordings())
def test_a_recording_is_there_and_its_module_says_what_it_holds(name):
    stored = read_recording(name)
    words = maker(name).__doc__
    for key, tensor in stored.items():
        assert key in words, f"the docstring of recorded/{name}.py doesn't say what {key} is"
        assert torch.isfinite(tensor.float()).all() or "nan" in words
    assert (FOLDER / f"{name}.safetensors").stat().st_size <= recording.MOST_BYTES + 10_000


@pytest.mark.parametrize("name", [name for name in recordings() if hasattr(maker(name), "first")])
def test_the_first_part_of_a_recording_is_made_again(name):
    stored = read_recording(name)
    for key, made in maker(name).first().items():
        part = stored[key][tuple(slice(0, size) for size in made.shape)]
        # Another processor rounds in another way, and one draw in thousands may then fall on the other side.
        if made.is_floating_point():
            same = torch.isclose(part, made.to(part.dtype), rtol=1e-2, atol=1e-3, equal_nan=True)
        else:
            same = part == made
        assert part.shape == made.shape and same.float().mean() > 0.97, key


def test_no_recording_lies_in_data_that_no_module_makes():
    assert {file.stem for file in FOLDER.glob("*.safetensors")} == set(recordings())


def test_reading_names_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match="there is no recording 'answer'; there are .*answers"):
        read_recording("answer")
    with pytest.raises(ValueError, match="make it with `grpo-lab record answers`"):
        read_recording("answers", folder=tmp_path)
    (tmp_path / "answers.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ValueError, match=r"answers.safetensors can't be read .*git checkout data/"):
        read_recording("answers", folder=tmp_path)


def test_a_recording_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    class Made:
        @staticmethod
        def record():
            return {"x_B": torch.arange(3).view(3, 1).expand(3, 2).t()}

    monkeypatch.setattr(recording, "maker", lambda name: Made)
    path = record("made", folder=tmp_path / "new")
    assert path.is_file() and os.listdir(path.parent) == ["made.safetensors"]
    assert read_recording("made", folder=path.parent)["x_B"].tolist() == [[0, 1, 2], [0, 1, 2]]
    monkeypatch.setattr(recording, "MOST_BYTES", 10)
    with pytest.raises(ValueError, match="made holds 48 bytes; keep it within 10"):
        record("made", folder=tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_folder_that_cannot_be_written_to_is_named_before_the_work(tmp_path, monkeypatch):
    class Slow:
        @staticmethod
        def record():
            pytest.fail("minutes of work for nothing")

    monkeypatch.setattr(recording, "maker", lambda name: Slow)
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="can't be written to .*Choose another folder"):
            record("slow", folder=folder)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_command_names_an_unknown_recording(capsys, tmp_path):
    assert main(["record", "nothing", "--out", str(tmp_path)]) == 2
    assert "there is no recording 'nothing'" in capsys.readouterr().err


def test_texts_come_back_as_they_went_in():
    texts = ["315042=", "", "a b"]
    assert texts_of(codes_of(texts)) == texts
    assert codes_of([]).shape == (0, 0)
    with pytest.raises(ValueError, match="code 1 to 255"):
        codes_of(["π"])
