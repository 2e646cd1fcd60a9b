"""Every chapter on disk is held to the rules; test_rules.py shows that each rule can be broken."""

import functools
import re

import nbformat
import pytest

from tools import rules
from tools.chapters import ROOT, chapters, orphans, read_source, skeleton, why_stale

FOLDER = ROOT / "chapters"
CHAPTERS = chapters(FOLDER)
by_name = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)


@functools.cache
def read(path):
    return nbformat.read(path, as_version=4)


def test_every_notebook_has_a_source_and_a_number():
    assert orphans(FOLDER) == []
    names = [chapter.name for chapter in CHAPTERS]
    assert [n for n in names if not re.fullmatch(r"(\d\d[a-z]?|appendix)_[a-z0-9_]+", n)] == []
    numbers = [n.split("_")[0] for n in names if not n.startswith("appendix_")]
    assert len(set(numbers)) == len(numbers), names


@by_name
def test_the_notebook_is_what_its_source_becomes(chapter):
    assert why_stale(chapter) == "", "run: make chapters"


@pytest.mark.parametrize(
    ("chapter", "rule"),
    [(chapter, rule) for chapter in CHAPTERS for rule in rules.SOURCE_RULES + rules.STORED_RULES],
    ids=lambda one: getattr(one, "name", None) or one.__name__,
)
def test_the_chapter_keeps_the_rule(chapter, rule):
    nb = read(chapter.notebook) if chapter.notebook.exists() else skeleton(read_source(chapter.source))
    assert [str(problem) for problem in rule(nb)] == []
