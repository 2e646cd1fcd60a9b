"""One fixture for each public function of grpo_lab.concepts, under the function's own name.

A test asks for the function it is about: `def test_equal_rewards_give_zero(group_advantage)`. So test_mutants.py
can run the very same test on a wrong version of the function, and see whether the test notices.
"""

import pytest

from tests.concepts.registry import CONCEPTS


def _fixture(name: str, function):
    @pytest.fixture(name=name, scope="session")
    def the_function():
        return function

    return the_function


for _name, (_concept, _function) in CONCEPTS.items():
    globals()[f"fixture_{_name}"] = _fixture(_name, _function)
