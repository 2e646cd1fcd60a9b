"""Reveal shows what really runs, folded."""

import inspect

import pytest

from grpo_lab.teach.judge import judge
from grpo_lab.teach.probes import PROBES
from grpo_lab.teach.reveal import reveal
from tests.concepts.registry import CONCEPTS


def with_docstring(x):
    """One line."""
    # a comment stays
    return x < 1 and "&"


@pytest.mark.parametrize("name", sorted(CONCEPTS))
def test_every_concept_can_be_revealed_and_runs_as_revealed(name):
    function = CONCEPTS[name][1]
    shown = reveal(function)
    scope = dict(function.__globals__)
    exec(shown.source, scope)
    assert inspect.signature(scope[name]) == inspect.signature(function)
    assert judge(scope[name], PROBES[name]) is None
    assert '"""' not in shown.source


def test_the_fold_is_closed_escaped_and_named():
    bundle = reveal(with_docstring)._repr_mimebundle_()
    assert bundle["text/html"].startswith("<details><summary>Show a solution: with_docstring</summary>")
    assert "return x &lt; 1 and &quot;&amp;&quot;" in bundle["text/html"]
    assert "return" not in bundle["text/plain"]
    assert "# a comment stays" in repr(reveal(with_docstring))


def test_the_docstring_is_shown_if_asked_for():
    assert '"""One line."""' in reveal(with_docstring, docstring=True).source


def test_what_has_no_source_is_named():
    with pytest.raises(TypeError, match="shows a Python function, got builtin"):
        reveal(len)
    with pytest.raises(TypeError, match="got int"):
        reveal(3)
    scope = {}
    exec("def made(): pass", scope)
    with pytest.raises(ValueError, match="can't be read"):
        reveal(scope["made"])
