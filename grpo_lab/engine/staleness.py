"""Which rollouts start now, and which finished ones are consumed now.

Staleness is made by keeping *samples*, not old weights: rollouts are written by the current policy the moment they
start, and wait in a queue until an update consumes them. Whoever decides about both is called `arrivals`: a function
from the state of the queue to a `Plan`. `lag(k)` is the simplest one.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Protocol

from grpo_lab.engine.batch import Batch, concatenate
from grpo_lab.guard import require


@dataclasses.dataclass(frozen=True)
class Plan:
    """What happens at this update. Prompts are named by tickets: serial numbers, in the order in which they started."""

    start: int  # prompts to start now, from the current weights
    take: tuple[int, ...]  # tickets to consume now (those about to start included)
    drop: tuple[int, ...] = ()  # tickets to throw away unused


class Arrivals(Protocol):
    def __call__(self, *, need: int, waiting: Sequence[int], next_ticket: int) -> Plan:
        """need: prompts a batch; waiting: tickets in the queue, oldest first; next_ticket: what a new prompt gets."""


@dataclasses.dataclass(frozen=True)
class Lag:
    """Every batch was written `updates` updates before it is consumed; the first ones by version 0, all of them."""

    updates: int

    def __call__(self, *, need: int, waiting: Sequence[int], next_ticket: int) -> Plan:
        keep = need * (self.updates + 1)  # in the queue, before this update takes its batch
        start = max(need, keep - len(waiting))
        tickets = [*waiting, *range(next_ticket, next_ticket + start)]
        surplus = len(tickets) - keep  # a lag that was lowered in the middle of a run: the oldest go
        return Plan(start, tuple(tickets[surplus : surplus + need]), tuple(tickets[:surplus]))


def lag(updates: int) -> Lag:
    """A constant lag in policy updates; 0 is synchronous. Raises: ValueError for a negative or broken number."""
    require(
        isinstance(updates, int) and not isinstance(updates, bool) and updates >= 0,
        f"lag counts policy updates: a whole number of at least 0, not {updates!r}",
    )
    return Lag(updates)


class Queue:
    """Finished rollouts that wait, by ticket. Holds whole launches, and copies rows only where a launch is split."""

    def __init__(self, launches: Iterable[Batch] = ()):
        self.launches: list[Batch] = list(launches)

    def copy(self) -> "Queue":
        return Queue(self.launches)

    @property
    def tickets(self) -> list[int]:
        """All waiting tickets, oldest first."""
        return sorted(t for launch in self.launches for t in launch.ticket_P.tolist())

    def put(self, launch: Batch) -> None:
        self.launches.append(launch)

    def take(self, tickets: Sequence[int]) -> Batch | None:
        """Remove these prompts with all their rows, and return them in this order (None for no ticket).

        Raises: ValueError for a ticket that isn't here; the queue is then unchanged.
        """
        missing = sorted(set(tickets) - set(self.tickets))
        require(
            not missing,
            f"tickets {missing} aren't in the queue; `arrivals` may only name waiting or starting ones",
        )
        require(len(set(tickets)) == len(tickets), f"a ticket can be consumed once; got {list(tickets)}")
        wanted, taken, kept = set(tickets), {}, []
        for launch in self.launches:
            here = launch.ticket_P.tolist()
            if not wanted.intersection(here):
                kept.append(launch)
                continue
            for p, ticket in enumerate(here):
                if ticket in wanted:
                    taken[ticket] = (launch, p)
            left = [p for p, ticket in enumerate(here) if ticket not in wanted]
            if left:
                kept.append(launch.rows(launch.rows_of_prompts(left)))
        self.launches = kept
        return concatenate(_runs(taken, tickets)) if tickets else None


def _runs(taken: dict[int, tuple[Batch, int]], tickets: Sequence[int]) -> list[Batch]:
    """The rows of the tickets in order, as few pieces as possible: neighbours from one launch stay together."""
    runs: list[tuple[Batch, list[int]]] = []
    for ticket in tickets:
        launch, p = taken[ticket]
        if runs and runs[-1][0] is launch and p > runs[-1][1][-1]:
            runs[-1][1].append(p)
        else:
            runs.append((launch, [p]))
    whole = [len(ps) == len(launch.prompts) for launch, ps in runs]
    return [
        launch if w else launch.rows(launch.rows_of_prompts(ps))
        for (launch, ps), w in zip(runs, whole, strict=True)
    ]
