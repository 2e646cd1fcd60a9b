"""The tests of the concepts must notice every wrong version in mutants.py.

A probe is an ordinary test of a concept that needs nothing but concept functions. Each wrong version is handed to the
probes of its concept in place of the right one, and at least one of them must fail.
"""

import importlib
import inspect
from collections.abc import Callable

import pytest

from tests.concepts.mutants import MUTANTS
from tests.concepts.registry import CONCEPTS

CASES = [(name, mistake) for name, mistakes in MUTANTS.items() for mistake in mistakes]


def _parameter_sets(test: Callable) -> list[dict]:
    """The combinations that pytest.mark.parametrize asks for; one empty one if it asks for none."""
    sets = [{}]
    for mark in getattr(test, "pytestmark", []):
        names, values = mark.args
        rows = [(value,) for value in values] if isinstance(names, str) else values
        names = (names,) if isinstance(names, str) else names
        sets = [chosen | dict(zip(names, row, strict=True)) for chosen in sets for row in rows]
    return sets


def _probes(name: str) -> list[tuple[Callable, dict]]:
    """The tests of the concept's file that ask for this function, and for no fixture but concepts.

    Tests of refusals are left out: a mutant has no guards, and would be noticed for that alone.
    """
    concept, _ = CONCEPTS[name]
    module = importlib.import_module(f"tests.concepts.test_{concept}")
    probes = []
    for test_name, test in inspect.getmembers(module, inspect.isfunction):
        if not test_name.startswith("test_") or "refuse" in test_name:
            continue
        wanted = set(inspect.signature(test).parameters)
        for chosen in _parameter_sets(test):
            if name in wanted and wanted <= set(CONCEPTS) | set(chosen):
                probes.append((test, chosen))
    return sorted(probes, key=lambda probe: hasattr(probe[0], "hypothesis"))  # the quick ones first


def _run(probe: tuple[Callable, dict], name: str, function: Callable) -> None:
    """Run one test with this function in the place of the concept, and the right ones for all others."""
    test, chosen = probe
    concepts = {
        other: CONCEPTS[other][1] for other in set(inspect.signature(test).parameters) & set(CONCEPTS)
    }
    test(**concepts | chosen | {name: function})


def _notices(probe: tuple[Callable, dict], name: str, function: Callable) -> bool:
    """Only a failed assertion counts: a wrong version that merely crashes has not been understood."""
    try:
        _run(probe, name, function)
    except (AssertionError, pytest.fail.Exception):
        return True
    return False


def test_every_public_function_has_at_least_two_mutants():
    assert {name: len(MUTANTS.get(name, {})) for name in CONCEPTS if len(MUTANTS.get(name, {})) < 2} == {}
    assert set(MUTANTS) == set(CONCEPTS)


@pytest.mark.parametrize("name", sorted(CONCEPTS))
def test_the_package_passes_every_probe(name):
    probes = _probes(name)
    assert probes
    for probe in probes:
        _run(probe, name, CONCEPTS[name][1])


@pytest.mark.parametrize(("name", "mistake"), CASES)
def test_a_probe_notices_the_mutant(name, mistake):
    function, _ = MUTANTS[name][mistake]
    assert any(_notices(probe, name, function) for probe in _probes(name))


@pytest.mark.parametrize(("name", "mistake"), CASES)
def test_a_mutant_can_stand_in_for_the_function_and_has_a_hint(name, mistake):
    wrong, hint = MUTANTS[name][mistake]
    right_parameters = inspect.signature(CONCEPTS[name][1]).parameters.values()
    wrong_parameters = inspect.signature(wrong).parameters.values()
    assert [(p.kind, p.default) for p in wrong_parameters] == [(p.kind, p.default) for p in right_parameters]
    assert hint.endswith((".", "?"))
    assert len(hint) > 30


def test_hints_of_one_function_differ():
    for mistakes in MUTANTS.values():
        hints = [hint for _, hint in mistakes.values()]
        assert len(set(hints)) == len(hints)
