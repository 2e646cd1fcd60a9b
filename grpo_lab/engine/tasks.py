"""Tasks: where prompts come from and who judges the answers. Text in, text out.

A task is anything with the five members of `Task`. The toys here are exact: the judge is a rule, so nobody has to
trust a reward model. All draw their prompts from the generator they are handed and keep no randomness of their own:
the same generator gives the same prompts, drawn one by one, so that 2 x 8 prompts are the same as 1 x 16.

Held-out prompts are chosen by a hash of the prompt (one in eight), so that training can't see one by accident.
"""

import dataclasses
import itertools
import math
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from grpo_lab.guard import require, require_count, require_range

SPLITS = ("train", "held_out")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """What the policy reads (`text`) and what only the judge knows (`target`, plain JSON data)."""

    text: str
    target: Any = None


class Task(Protocol):
    """What the engine asks of a task.

    name, alphabet         the characters that prompts and answers use (a real language model ignores it)
    max_tokens, max_turns  most tokens in one turn (end token included), most turns in an episode
    fixed_length           True: a turn always has `max_tokens` tokens and no end token; reaching them is no cut
    """

    name: str
    alphabet: str
    max_tokens: int
    max_turns: int
    fixed_length: bool

    def prompts(
        self, n: int, *, generator: torch.Generator, split: str = "train", step: int = 0
    ) -> list[Prompt]:
        """n prompts. `step` is the number of policy updates so far, for preferences that change."""

    def reward(self, prompt: Prompt, turns: Sequence[str]) -> float | list[float]:
        """The judge. A float goes on the last token; a list holds one reward a turn, on each turn's last token."""

    def reply(self, prompt: Prompt, turns: Sequence[str]) -> str | None:
        """What the environment says after the last turn; None: the episode is over."""

    def demonstration(self, prompt: Prompt, *, generator: torch.Generator) -> list[str]:
        """The turns of one demonstrator, for the supervised warm start."""


def is_held_out(text: str) -> bool:
    """One prompt in eight is held out, by a hash that is the same on every machine (Python's own is salted).

    The text decides, not the target: where a text hides a secret, holding out secrets would teach the policy in
    training which ones never come.
    """
    return zlib.crc32(text.encode()) % 8 == 0


def require_split(split: str) -> None:
    require(split in SPLITS, f"split must be one of {SPLITS}, not {split!r}")


def integer(low: int, high: int, generator: torch.Generator) -> int:
    """One whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def rewards_of(task: Task, prompt: Prompt, turns: Sequence[str]) -> list[float]:
    """What the judge gave, one number a turn. Raises: ValueError that names task and prompt for anything else."""
    reward = task.reward(prompt, list(turns))
    each = list(reward) if isinstance(reward, (list, tuple)) else [0.0] * (len(turns) - 1) + [reward]
    require(
        len(each) == len(turns) and all(isinstance(value, (int, float)) for value in each),
        f"task {task.name} gave {len(each)} rewards for the {len(turns)} turns of {prompt.text!r}: {reward!r}; "
        "return one float, or a list with one a turn",
    )
    return [float(value) for value in each]


class OneTurn:
    """The shared part of single-turn tasks: draw until the split fits; the episode ends after the first answer."""

    max_turns = 1
    fixed_length = False
    splits = True

    def draw(self, generator: torch.Generator) -> Prompt:
        raise NotImplementedError

    def prompts(
        self, n: int, *, generator: torch.Generator, split: str = "train", step: int = 0
    ) -> list[Prompt]:
        require_count("n", n, 0)
        require_split(split)
        prompts = []
        while len(prompts) < n:
            prompt = self.draw(generator)
            if not self.splits or is_held_out(prompt.text) == (split == "held_out"):
                prompts.append(prompt)
        return prompts

    def reward(self, prompt: Prompt, turns: Sequence[str]) -> float:
        return float(turns[-1] == prompt.target)

    def reply(self, prompt: Prompt, turns: Sequence[str]) -> None:
        return None

    def demonstration(self, prompt: Prompt, *, generator: torch.Generator) -> list[str]:
        return [prompt.target]


class Sort(OneTurn):
    """Sort the digits: "315042=" is answered by "012345". Right or wrong, no partial credit."""

    alphabet = "0123456789="

    def __init__(self, digits: int = 6):
        require_count("digits", digits, 1)
        require_range("digits", digits, 1, 32)
        self.digits = digits
        self.name = f"sort{digits}"
        self.max_tokens = digits + 1
        self.splits = digits > 2  # with 10 or 100 prompts in the world a split would leave too few

    def draw(self, generator: torch.Generator) -> Prompt:
        text = "".join(str(d) for d in torch.randint(0, 10, (self.digits,), generator=generator).tolist())
        return Prompt(text + "=", "".join(sorted(text)))


class Addition(OneTurn):
    """Add two numbers of 1 to `max_digits` digits: "47+5=" is answered by "52".

    The number of digits is drawn for each operand, so the pass rate of a half-trained policy is spread from 0 to 1
    over the prompts. That is what group sizes and zero-variance groups are about.
    """

    alphabet = "0123456789+="

    def __init__(self, max_digits: int = 4):
        require_count("max_digits", max_digits, 2)
        require_range("max_digits", max_digits, 2, 12)
        self.max_digits = max_digits
        self.name = f"addition{max_digits}"
        self.max_tokens = max_digits + 2

    def draw(self, generator: torch.Generator) -> Prompt:
        a, b = (self._number(generator) for _ in range(2))
        return Prompt(f"{a}+{b}=", str(a + b))

    def _number(self, generator: torch.Generator) -> int:
        digits = integer(1, self.max_digits, generator)
        return integer(10 ** (digits - 1) if digits > 1 else 0, 10**digits - 1, generator)


class FreeLength(OneTurn):
    """Sort a few digits after as many dots as you like: "3142=" is answered by "1234", ".1234", "..1234" ...

    The dots cost nothing and help nothing, so the task is solvable at any length up to `max_tokens`. Whatever a
    training run does to the length, the loss did it and not the task. An answer that is cut off is wrong.
    """

    alphabet = "0123456789=."

    def __init__(self, digits: int = 4, max_tokens: int = 24):
        require_count("digits", digits, 3)
        require_range("digits", digits, 3, 16)
        require_count("max_tokens", max_tokens, digits + 1)
        self.digits = digits
        self.max_tokens = max_tokens
        self.name = f"free_length{digits}" + (f"_max{max_tokens}" if max_tokens != 24 else "")

    draw = Sort.draw

    def reward(self, prompt: Prompt, turns: Sequence[str]) -> float:
        # With the end token an answer has one token more than characters: one without room for it was cut off.
        return float(len(turns[-1]) < self.max_tokens and turns[-1].lstrip(".") == prompt.target)

    def demonstration(self, prompt: Prompt, *, generator: torch.Generator) -> list[str]:
        most = self.max_tokens - self.digits - 1
        return ["." * integer(0, most, generator) + prompt.target]


class Bandit(OneTurn):
    """One prompt, one token, a reward for each: small enough to enumerate every answer."""

    fixed_length = True
    splits = False
    max_tokens = 1

    def __init__(self, rewards: Sequence[float] = (0.0, 0.0, 1.0)):
        require(1 < len(rewards) <= 20, f"a bandit has 2 to 20 arms, not {len(rewards)}")
        require(
            all(math.isfinite(r) for r in rewards), f"rewards must be finite numbers, not {list(rewards)}"
        )
        self.rewards = tuple(float(r) for r in rewards)
        self.arms = "abcdefghijklmnopqrst"[: len(rewards)]
        self.alphabet = "?" + self.arms
        self.name = f"bandit{len(rewards)}"

    def draw(self, generator: torch.Generator) -> Prompt:
        return Prompt("?")

    def reward(self, prompt: Prompt, turns: Sequence[str]) -> float:
        arm = self.arms.find(turns[-1]) if len(turns[-1]) == 1 else -1
        return self.rewards[arm] if arm >= 0 else 0.0

    def demonstration(self, prompt: Prompt, *, generator: torch.Generator) -> list[str]:
        return [self.arms[integer(0, len(self.arms) - 1, generator)]]


class Tree(OneTurn):
    """Two tokens, each `a` or `b`: four paths, each with its own reward. The smallest task with a state to visit."""

    fixed_length = True
    splits = False
    alphabet = "?ab"
    name = "tree"
    max_tokens = 2

    def __init__(self, rewards: Sequence[float] = (0.0, 0.0, 0.0, 1.0)):
        require(len(rewards) == 4, f"the tree has 4 paths (aa, ab, ba, bb), so 4 rewards, not {len(rewards)}")
        require(
            all(math.isfinite(r) for r in rewards), f"rewards must be finite numbers, not {list(rewards)}"
        )
        self.rewards = dict(
            zip(map("".join, itertools.product("ab", repeat=2)), map(float, rewards), strict=True)
        )

    draw = Bandit.draw

    def reward(self, prompt: Prompt, turns: Sequence[str]) -> float:
        return self.rewards.get(turns[-1], 0.0)

    def demonstration(self, prompt: Prompt, *, generator: torch.Generator) -> list[str]:
        return ["".join("ab"[integer(0, 1, generator)] for _ in range(2))]


class Guess:
    """Guess the hidden number: the prompt names the range, each turn is one guess, the reply is `<` or `>`.

    Numbers are one symbol each, as in hexadecimal but further: 0 to 9, then a = 10 to v = 31. "4-j?" hides a number
    from 4 to 19; after the guess "a" the reply ">" means that the hidden number is larger than 10. Reward 1 if it is
    found within `max_turns` guesses. With 16 numbers and 4 guesses binary search finds 15 of 16. A group shares its
    secret, since the secret belongs to the prompt. The demonstrator guesses somewhere in what is still possible, and
    with probability `noise` anywhere in the range. Held-out prompts are ranges that training never plays.
    """

    symbols = "0123456789abcdefghijklmnopqrstuv"
    alphabet = symbols + "-?<>"
    max_tokens = 2
    fixed_length = False

    def __init__(self, numbers: int = 16, max_turns: int = 4, noise: float = 0.1):
        require_count("numbers", numbers, 2)
        require_range("numbers", numbers, 2, len(self.symbols))
        require_count("max_turns", max_turns, 1)
        require_range("max_turns", max_turns, 1, 16)
        require_range("noise", noise, 0, 1)
        self.numbers = numbers
        self.max_turns = max_turns
        self.noise = noise
        # What a warm start depends on is in the name, since that is what it is cached under.
        self.name = f"guess{numbers}" + (f"_turns{max_turns}" if max_turns != 4 else "")
        self.name += f"_noise{noise:g}" if noise != 0.1 else ""

    def draw(self, generator: torch.Generator) -> Prompt:
        low = integer(0, len(self.symbols) - self.numbers, generator)
        high = low + self.numbers - 1
        return Prompt(
            f"{self.symbols[low]}-{self.symbols[high]}?",
            {"low": low, "secret": integer(low, high, generator)},
        )

    splits = True
    prompts = OneTurn.prompts

    def _number(self, turn: str) -> int | None:
        return self.symbols.index(turn) if len(turn) == 1 and turn in self.symbols else None

    def reward(self, prompt: Prompt, turns: Sequence[str]) -> float:
        return float(any(self._number(turn) == prompt.target["secret"] for turn in turns))

    def reply(self, prompt: Prompt, turns: Sequence[str]) -> str | None:
        guess, secret = self._number(turns[-1]), prompt.target["secret"]
        if guess == secret or len(turns) >= self.max_turns:
            return None
        if guess is None:
            return "?"  # not a number: the turn is lost
        return ">" if secret > guess else "<"

    def demonstration(self, prompt: Prompt, *, generator: torch.Generator) -> list[str]:
        first, secret = prompt.target["low"], prompt.target["secret"]
        low, high, guesses = first, first + self.numbers - 1, []
        while len(guesses) < self.max_turns and (not guesses or guesses[-1] != secret):
            anywhere = float(torch.rand((), generator=generator)) < self.noise
            guess = (
                integer(first, first + self.numbers - 1, generator)
                if anywhere
                else integer(low, high, generator)
            )
            guesses.append(guess)
            if guess < secret:
                low = max(low, guess + 1)
            else:
                high = min(high, guess - 1)
        return [self.symbols[guess] for guess in guesses]


class Wrapped:
    """A task that changes how another one draws or judges; everything else is passed through."""

    def __init__(self, task: Task):
        self.task = task

    def __getattr__(self, name: str):
        if name.startswith("__") or name == "task":  # copying and unpickling ask before __init__ has run
            raise AttributeError(name)
        return getattr(self.task, name)


class Pool(Wrapped):
    """Prompts repeat: all training prompts come from `size` fixed ones. Held-out prompts are the task's own."""

    def __init__(self, task: Task, size: int = 1024, seed: int = 0):
        super().__init__(task)
        require_count("size", size, 1)
        self.name = f"{task.name}_pool{size}"
        self.pool = task.prompts(size, generator=torch.Generator().manual_seed(seed))

    def prompts(
        self, n: int, *, generator: torch.Generator, split: str = "train", step: int = 0
    ) -> list[Prompt]:
        if split != "train":
            return self.task.prompts(n, generator=generator, split=split, step=step)
        return [self.pool[integer(0, len(self.pool) - 1, generator)] for _ in range(n)]


class Online(Wrapped):
    """Each training prompt is seen once, and what is wanted flips: first sorted upwards, from `flip_at` on downwards.

    `flip_at` counts policy updates. Held-out prompts follow the preference of the step at which they are drawn.
    The prompts already used are part of a run's state: `state()` and `restore()` put them into its checkpoint.
    """

    def __init__(self, task: Sort | None = None, flip_at: int = 150):
        super().__init__(task or Sort(6))
        require_count("flip_at", flip_at, 0)
        require(
            isinstance(self.task, Sort),
            f"the flip is between upwards and downwards: Online takes Sort, not {self.task}",
        )
        self.flip_at = flip_at
        self.name = f"{self.task.name}_online{flip_at}"
        self.seen: set[str] = set()

    def prompts(
        self, n: int, *, generator: torch.Generator, split: str = "train", step: int = 0
    ) -> list[Prompt]:
        require_count("n", n, 0)
        require_split(split)
        # The hash splits 1 to 7 only about: the last 5 % stay unused, or the search for a fresh prompt might never end.
        left = 10**self.task.digits * (7 if self.task.splits else 8) * 19 // 160 - len(self.seen)
        require(
            split != "train" or n <= left,
            f"{self.name} has {left} fresh prompts left and {n} were asked for; take more digits or fewer steps",
        )
        prompts, new = [], set()
        while len(prompts) < n:
            (prompt,) = self.task.prompts(1, generator=generator, split=split)
            if split == "train" and (prompt.text in self.seen or prompt.text in new):
                continue
            new.add(prompt.text)
            prompts.append(self._as_wanted(prompt, step))
        if split == "train":  # at the end: an interrupt on the way has used up nothing
            self.seen |= new
        return prompts

    def _as_wanted(self, prompt: Prompt, step: int) -> Prompt:
        return prompt if step < self.flip_at else Prompt(prompt.text, prompt.target[::-1])

    def forget(self, prompts: Sequence[Prompt]) -> None:
        """These were drawn for a step that didn't happen."""
        self.seen.difference_update(prompt.text for prompt in prompts)

    def state(self) -> list[str]:
        return sorted(self.seen)

    def restore(self, state: list[str]) -> None:
        self.seen = set(state)


TASKS = {
    "sort": Sort,
    "sort6": Sort,
    "sort8": lambda: Sort(8),
    "addition": Addition,
    "free_length": FreeLength,
    "bandit": Bandit,
    "tree": Tree,
    "guess": Guess,
    "sort_pool": lambda: Pool(Sort()),
    "sort_online": Online,
}


def named_task(name: str) -> Task:
    """The task that a command line names, one of `TASKS`. Raises: ValueError that lists the names."""
    require(name in TASKS, f"there is no task {name!r}; the tasks are {', '.join(TASKS)}")
    return TASKS[name]()
