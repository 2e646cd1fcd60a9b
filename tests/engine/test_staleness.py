"""The queue and the constant lag."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_lab.engine.staleness import Queue, lag
from tests.engine.helpers import TASKS, small_policy, small_rollout


def simulate(lags, need, steps):
    """Tickets and versions only: what each step starts and takes, and the staleness of what it takes."""
    waiting, version_of, next_ticket, taken = [], {}, 0, []
    for version in range(steps):
        plan = lag(lags[min(version, len(lags) - 1)])(
            need=need, waiting=list(waiting), next_ticket=next_ticket
        )
        for ticket in range(next_ticket, next_ticket + plan.start):
            version_of[ticket] = version
            waiting.append(ticket)
        next_ticket += plan.start
        waiting = [t for t in waiting if t not in {*plan.take, *plan.drop}]
        taken.append((plan, [version - version_of[t] for t in plan.take]))
    return taken, waiting, next_ticket


@given(k=st.integers(0, 12), need=st.integers(1, 20), steps=st.integers(1, 30))
def test_with_lag_k_each_update_takes_rollouts_k_updates_old_and_the_first_ones_version_zero(k, need, steps):
    taken, waiting, started = simulate([k], need, steps)
    for version, (plan, staleness) in enumerate(taken):
        assert staleness == [min(version, k)] * need
        assert plan.start == (need * (k + 1) if version == 0 else need) and not plan.drop
    order = [t for plan, _ in taken for t in plan.take]
    assert order == list(range(need * steps))  # in the order in which they started, none twice, none lost
    assert len(waiting) == k * need and started == len(order) + len(waiting)


@given(lags=st.lists(st.integers(0, 6), min_size=1, max_size=8), need=st.integers(1, 5))
def test_a_dial_on_the_lag_drops_the_oldest_or_starts_more_and_loses_nothing_silently(lags, need):
    steps = len(lags) + 3
    taken, waiting, started = simulate(lags, need, steps)
    consumed = [t for plan, _ in taken for t in plan.take]
    dropped = [t for plan, _ in taken for t in plan.drop]
    assert sorted(consumed + dropped + waiting) == list(range(started))
    assert all(len(plan.take) == need for plan, _ in taken)
    assert len(waiting) == lags[-1] * need


@pytest.mark.parametrize("bad", [-1, 1.5, "2", True, None])
def test_a_lag_that_is_no_count_is_refused(bad):
    with pytest.raises(ValueError, match="lag counts policy updates: a whole number of at least 0"):
        lag(bad)


@pytest.fixture(scope="module")
def launches():
    policy = small_policy()
    first, second = (
        small_rollout(policy, TASKS["sort"], prompts=4, group_size=2, seed=seed) for seed in (0, 1)
    )
    return [first, second.replace(ticket_P=torch.arange(4, 8))]


def test_taking_a_whole_launch_gives_it_back_untouched(launches):
    queue = Queue(launches)
    assert queue.take([0, 1, 2, 3]) is launches[0]
    assert queue.tickets == [4, 5, 6, 7]


def test_tickets_come_back_in_the_order_asked_with_all_their_rows(launches):
    queue = Queue(launches)
    batch = queue.take([6, 1, 2, 4])
    assert batch.ticket_P.tolist() == [6, 1, 2, 4] and len(batch) == 8
    assert batch.turns[:2] == launches[1].turns[4:6] and batch.turns[2:6] == launches[0].turns[2:6]
    assert queue.tickets == [0, 3, 5, 7]
    rest = queue.take([7, 0])
    assert rest.turns == launches[1].turns[6:8] + launches[0].turns[0:2]


def test_a_ticket_that_is_not_there_is_named_and_nothing_is_lost(launches):
    queue = Queue(launches)
    with pytest.raises(ValueError, match=r"tickets \[99\] aren't in the queue"):
        queue.take([0, 99])
    with pytest.raises(ValueError, match="consumed once"):
        queue.take([0, 0])
    assert queue.tickets == list(range(8))


def test_a_copy_of_the_queue_can_be_emptied_without_touching_the_first(launches):
    queue = Queue(launches)
    queue.copy().take([0, 5])
    assert queue.tickets == list(range(8))
