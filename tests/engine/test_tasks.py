"""Tasks: deterministic from their generator, held-out prompts that training never sees, and judges that are exact."""

import copy
import itertools
import json
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grpo_lab.engine.policy import build_policy
from grpo_lab.engine.rollout import rollout, row_noise
from grpo_lab.engine.tasks import (
    Addition,
    Bandit,
    FreeLength,
    Guess,
    Online,
    Pool,
    Prompt,
    Sort,
    Tree,
    is_held_out,
    named_task,
)
from grpo_lab.engine.warm_start import demonstration_batch
from tests.engine.helpers import prompts_of

MAKERS = {
    "sort6": Sort,
    "sort8": lambda: Sort(8),
    "addition": Addition,
    "free_length": FreeLength,
    "bandit": Bandit,
    "tree": Tree,
    "guess": Guess,
    "pool": lambda: Pool(Sort(), size=64),
    "online": Online,
}
EXACT = ["sort6", "sort8", "addition", "free_length", "pool", "online"]
every_task = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- prompts


@every_task
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_the_same_generator_gives_the_same_prompts_and_the_global_one_is_left_alone(make, split):
    state = torch.get_rng_state()
    assert prompts_of(make(), 16, seed=3, split=split) == prompts_of(make(), 16, seed=3, split=split)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", sorted(set(MAKERS) - {"bandit", "tree"}))  # those have one prompt
def test_another_generator_gives_other_prompts(name):
    assert prompts_of(MAKERS[name](), 16, seed=3) != prompts_of(MAKERS[name](), 16, seed=4)


@every_task
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_sixteen_prompts_are_eight_and_eight(make, split):
    whole, parts = make(), make()
    g = generator(5)
    in_parts = parts.prompts(8, generator=g, split=split) + parts.prompts(8, generator=g, split=split)
    assert whole.prompts(16, generator=generator(5), split=split) == in_parts


@every_task
def test_no_prompt_is_no_prompt(make):
    assert make().prompts(0, generator=generator()) == []


@pytest.mark.parametrize("name", ["sort6", "sort8", "addition", "free_length", "guess", "pool", "online"])
def test_training_never_sees_a_held_out_prompt(name):
    task = MAKERS[name]()
    train, held_out = (task.prompts(1500, generator=generator(1), split=s) for s in ("train", "held_out"))

    def key(prompt: Prompt) -> str:
        return f"{prompt.text}{prompt.target}"

    assert len({key(p) for p in held_out}) > 5
    assert not {key(p) for p in train} & {key(p) for p in held_out}


def test_about_one_prompt_in_eight_is_held_out():
    keys = [f"{''.join(d)}={''.join(sorted(d))}" for d in itertools.product("0123456789", repeat=4)]
    assert abs(sum(map(is_held_out, keys)) / len(keys) - 1 / 8) < 0.01


@every_task
def test_an_unknown_split_is_named(make):
    with pytest.raises(ValueError, match=r"split must be one of \('train', 'held_out'\), not 'test'"):
        make().prompts(1, generator=generator(), split="test")


@pytest.mark.parametrize("name", sorted(set(MAKERS) - {"pool"}))
def test_a_negative_number_of_prompts_is_refused(name):
    with pytest.raises(ValueError, match="n must be at least 0"):
        MAKERS[name]().prompts(-1, generator=generator())


@every_task
def test_a_task_uses_no_character_outside_its_alphabet(make):
    task = make()
    g = generator(2)
    for prompt in task.prompts(50, generator=g):
        turns = task.demonstration(prompt, generator=g)
        replies = [task.reply(prompt, turns[: i + 1]) or "" for i in range(len(turns))]
        assert set(prompt.text + "".join(turns) + "".join(replies)) <= set(task.alphabet)


@every_task
def test_what_the_judge_knows_is_plain_json_so_that_a_checkpoint_can_hold_it(make):
    for prompt in prompts_of(make(), 8):
        assert json.loads(json.dumps(prompt.target)) == prompt.target


# ---- judges


@pytest.mark.parametrize("name", EXACT)
def test_a_demonstration_is_right_and_fits(name):
    task, g = MAKERS[name](), generator(1)
    for prompt in task.prompts(200, generator=g):
        turns = task.demonstration(prompt, generator=g)
        assert task.reward(prompt, turns) == 1.0
        assert len(turns) == 1 and len(turns[0]) + 1 <= task.max_tokens  # and its end token
        assert task.reply(prompt, turns) is None


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: "",
        lambda s: s + " ",
        lambda s: " " + s,
        lambda s: s[:-1],
        lambda s: s + s[-1],
        lambda s: s + "=",
        lambda s: "0" * 500,
        lambda s: s.translate({ord("0") + i: 0x0660 + i for i in range(10)}),  # arabic-indic digits
        lambda s: s.translate({ord("0") + i: 0xFF10 + i for i in range(10)}),  # full-width digits
        lambda s: s + "\n",
        lambda s: s.translate({ord("0") + i: ord("0") + (i + 1) % 10 for i in range(10)}),
    ],
)
def test_almost_right_is_wrong(name, spoil):
    task, g = MAKERS[name](), generator(1)
    for prompt in task.prompts(20, generator=g):
        right = task.demonstration(prompt, generator=g)[0]
        assert task.reward(prompt, [spoil(right)]) == 0.0
        assert task.reward(prompt, [right]) == 1.0


@every_task
@given(said=st.text(max_size=40))
def test_the_judge_takes_any_text_and_gives_a_number_from_0_to_1(make, said):
    task = make()
    (prompt,) = prompts_of(task, 1)
    assert task.reward(prompt, [said]) in (0.0, 1.0)
    assert task.reply(prompt, [said]) in (None, "?", "<", ">")


@given(digits=st.integers(1, 12), seed=st.integers(0, 1000))
def test_sort_wants_the_digits_in_order(digits, seed):
    task = Sort(digits)
    for prompt in task.prompts(5, generator=generator(seed)):
        assert len(prompt.text) == digits + 1 and prompt.text.endswith("=")
        assert prompt.target == "".join(sorted(prompt.text[:-1]))


def test_addition_adds_and_its_difficulty_is_spread():
    prompts = prompts_of(Addition(4), 2000)
    lengths = set()
    for prompt in prompts:
        a, b = prompt.text[:-1].split("+")
        assert prompt.target == str(int(a) + int(b)) and str(int(a)) == a and str(int(b)) == b
        lengths.add((len(a), len(b)))
    assert lengths == set(itertools.product(range(1, 5), repeat=2))
    # each number of digits is as likely as any other, whatever the count of numbers that have it
    share = sum(len(p.text.split("+")[0]) == 1 for p in prompts) / 2000
    assert abs(share - 0.25) < 0.04


def test_addition_has_room_for_the_largest_sum():
    task = Addition(4)
    assert len(str(9999 + 9999)) + 1 == task.max_tokens


@pytest.mark.parametrize(("digits", "max_tokens"), [(4, 24), (3, 8), (4, 5)])
def test_free_length_is_right_at_every_length_and_wrong_where_it_was_cut_off(digits, max_tokens):
    task = FreeLength(digits, max_tokens)
    (prompt,) = prompts_of(task, 1)
    for tokens in range(digits + 1, max_tokens + 1):  # the end token is one of them
        assert task.reward(prompt, ["." * (tokens - 1 - digits) + prompt.target]) == 1.0
    assert (
        task.reward(prompt, ["." * (max_tokens - digits) + prompt.target]) == 0.0
    )  # no room for the end token
    assert task.reward(prompt, [prompt.target + "."]) == 0.0
    assert task.reward(prompt, [prompt.target[0] + "." + prompt.target[1:]]) == 0.0


def test_free_length_demonstrations_have_every_length_and_none_is_cut_off():
    task, g = FreeLength(3, 8), generator()
    prompts = task.prompts(200, generator=g)
    turns = [task.demonstration(p, generator=g) for p in prompts]
    batch = demonstration_batch(build_policy(task, "XS"), task, prompts, turns)
    assert set(batch.length_B.tolist()) == set(range(4, 9))
    assert bool(batch.finished_B.all())


def test_bandit_pays_what_each_arm_says():
    task = Bandit([0.5, -1.0, 2.0])
    (prompt,) = prompts_of(task, 1)
    assert [task.reward(prompt, [arm]) for arm in "abc"] == [0.5, -1.0, 2.0]
    assert [task.reward(prompt, [other]) for other in ("", "?", "d", "ab", "bc", "abc", " ")] == [0.0] * 7
    assert task.fixed_length and task.max_tokens == 1
    seen = {task.demonstration(prompt, generator=g)[0] for g in [generator()] for _ in range(50)}
    assert seen == {"a", "b", "c"}


def test_tree_pays_by_path():
    task = Tree([1.0, 2.0, 3.0, 4.0])
    (prompt,) = prompts_of(task, 1)
    assert [task.reward(prompt, [path]) for path in ("aa", "ab", "ba", "bb")] == [1.0, 2.0, 3.0, 4.0]
    assert [task.reward(prompt, [other]) for other in ("", "a", "b", "aaa", "?a", "a?")] == [0.0] * 6
    g = generator()
    assert {task.demonstration(prompt, generator=g)[0] for _ in range(60)} == {"aa", "ab", "ba", "bb"}


# ---- guess


def hidden(secret: int) -> Prompt:
    return Prompt("0-f?", {"low": 0, "secret": secret})


def test_replies_point_to_the_hidden_number_for_all_16_of_them():
    task = Guess()
    for secret, guess in itertools.product(range(16), range(16)):
        wanted = None if guess == secret else ">" if secret > guess else "<"
        assert task.reply(hidden(secret), [task.symbols[guess]]) == wanted
        assert task.reward(hidden(secret), [task.symbols[guess]]) == float(guess == secret)


@pytest.mark.parametrize("said", ["", "07", " 7", "7 ", "+", "-", "?", "٧", "7\n", "½", "A", "77"])
def test_what_is_no_number_loses_the_turn(said):
    assert Guess().reply(hidden(7), [said]) == "?"
    assert Guess().reward(hidden(7), [said]) == 0.0
    assert Guess().reward(hidden(7), [said, "7"]) == 1.0  # the next turn may still find it


def test_the_episode_ends_with_the_last_turn():
    task = Guess(max_turns=3)
    assert task.reply(hidden(7), ["0", "1"]) == ">"
    assert task.reply(hidden(7), ["0", "1", "2"]) is None
    assert task.reply(hidden(7), ["0", "1", "?"]) is None


def test_binary_search_finds_15_of_16():
    task, found = Guess(), 0
    for secret in range(16):
        low, high, turns = 0, 15, []
        reply = ""
        while reply is not None:
            guess = (low + high) // 2
            turns.append(task.symbols[guess])
            reply = task.reply(hidden(secret), turns)
            if reply == ">":
                low = guess + 1
            elif reply == "<":
                high = guess - 1
        found += task.reward(hidden(secret), turns)
    assert found == 15


def test_held_out_are_whole_ranges_so_that_no_secret_is_given_away_by_its_absence():
    prompts = Guess().prompts(3000, generator=generator(), split="train")
    by_range = {}
    for prompt in prompts:
        by_range.setdefault(prompt.text, set()).add(prompt.target["secret"] - prompt.target["low"])
    assert len(by_range) == 15 and all(secrets == set(range(16)) for secrets in by_range.values())


def chance(low: int, high: int, secret: int, turns: int, noise: float, numbers: int = 16) -> float:
    """The demonstrator's chance to find the secret, by enumeration of all that it may do."""
    if turns == 0:
        return 0.0
    total = 0.0
    for guess in range(numbers):
        p = noise / numbers + (1 - noise) * (low <= guess <= high) / (high - low + 1)
        if p == 0:
            continue
        if guess == secret:
            total += p
        elif guess < secret:
            total += p * chance(max(low, guess + 1), high, secret, turns - 1, noise, numbers)
        else:
            total += p * chance(low, min(high, guess - 1), secret, turns - 1, noise, numbers)
    return total


@pytest.mark.parametrize("noise", [0.0, 0.25, 1.0])
def test_the_demonstrator_wins_as_often_as_its_rule_says(noise):
    """Between a careful one (noise 0) and a blind one (noise 1) there is something to learn."""
    wanted = sum(chance(0, 7, s, 3, noise, numbers=8) for s in range(8)) / 8
    task, g = Guess(numbers=8, max_turns=3, noise=noise), generator(7)
    prompts = task.prompts(4000, generator=g)
    won = sum(task.reward(p, task.demonstration(p, generator=g)) for p in prompts) / 4000
    assert abs(won - wanted) < 0.03
    if noise == 1.0:
        assert wanted == pytest.approx(1 - (7 / 8) ** 3)


def test_the_default_demonstrator_wins_a_little_more_than_half():
    task, g = Guess(), generator(7)
    prompts = task.prompts(4000, generator=g)
    assert 0.51 < sum(task.reward(p, task.demonstration(p, generator=g)) for p in prompts) / 4000 < 0.58


def test_the_demonstrator_keeps_to_the_rules():
    task, g = Guess(noise=0.5), generator(3)
    lengths = set()
    for prompt in task.prompts(300, generator=g):
        low, secret = prompt.target["low"], prompt.target["secret"]
        assert (
            prompt.text == f"{task.symbols[low]}-{task.symbols[low + 15]}?"
            and 0 <= low <= secret <= low + 15 <= 31
        )
        turns = task.demonstration(prompt, generator=g)
        lengths.add(len(turns))
        assert all(low <= task.symbols.index(t) <= low + 15 for t in turns)
        for i in range(len(turns)):  # it stops exactly where the environment stops
            assert (task.reply(prompt, turns[: i + 1]) is None) == (i + 1 == len(turns))
    assert lengths == {1, 2, 3, 4}


def test_a_careful_demonstrator_never_guesses_what_is_ruled_out():
    task, g = Guess(noise=0.0), generator(3)
    for prompt in task.prompts(200, generator=g):
        turns = task.demonstration(prompt, generator=g)
        assert len(set(turns)) == len(turns)
        for i, turn in enumerate(turns):
            for earlier in turns[:i]:
                assert (turn > earlier) == (
                    task.reply(prompt, [earlier]) == ">"
                )  # symbols are in ASCII order


def test_a_group_shares_its_secret():
    task = Guess()
    prompts = prompts_of(task, 6)
    batch = rollout(
        build_policy(task, "XS"),
        task,
        prompts,
        group_size=4,
        noise_BT=row_noise(0, range(6), 4, task.max_turns * task.max_tokens),
    )
    for p in range(6):
        rows = [b for b in range(24) if int(batch.prompt_B[b]) == p]
        assert len(rows) == 4
        assert {batch.prompts[int(batch.prompt_B[b])].target["secret"] for b in rows} == {
            prompts[p].target["secret"]
        }


# ---- prompts that repeat, prompts that never do


def test_pool_repeats_its_prompts_and_nothing_else_in_training():
    task = Pool(Sort(), size=20, seed=1)
    drawn = task.prompts(500, generator=generator())
    assert {p.text for p in drawn} == {p.text for p in task.pool} and len(task.pool) == 20
    assert task.pool == Sort().prompts(20, generator=generator(1))
    assert task.pool != Pool(Sort(), size=20, seed=2).pool


def test_pool_held_out_prompts_are_the_tasks_own():
    task = Pool(Sort(), size=20)
    fresh = task.prompts(200, generator=generator(4), split="held_out")
    assert fresh == Sort().prompts(200, generator=generator(4), split="held_out")
    assert len({p.text for p in fresh}) > 190


def test_a_wrapped_task_passes_everything_else_through_and_can_be_copied():
    task = copy.deepcopy(Pool(Guess(), size=3))
    passed = (task.max_turns, task.max_tokens, task.alphabet, task.fixed_length)
    assert passed == (4, 2, Guess.alphabet, False)
    assert task.name == "guess16_pool3"
    assert not hasattr(task, "state")
    with pytest.raises(AttributeError):
        task.nothing_of_the_kind  # noqa: B018


def test_online_shows_each_prompt_once_and_held_out_ones_as_often_as_asked():
    task, g = Online(Sort(4)), generator()
    texts = [p.text for _ in range(10) for p in task.prompts(300, generator=g)]
    assert len(set(texts)) == len(texts) == 3000
    held_out = [task.prompts(50, generator=generator(9), split="held_out") for _ in range(2)]
    assert held_out[0] == held_out[1]
    assert set(task.state()) == set(texts)


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_online_flips_at_flip_at_and_not_before(split):
    for step, downwards in [(0, False), (6, False), (7, True), (100, True)]:
        task = Online(Sort(6), flip_at=7)
        for prompt in task.prompts(20, generator=generator(), split=split, step=step):
            assert prompt.target == "".join(sorted(prompt.text[:-1], reverse=downwards))
            assert task.reward(prompt, [prompt.target]) == 1.0
            assert task.demonstration(prompt, generator=generator()) == [prompt.target]


def test_online_flipped_from_the_start():
    (prompt,) = Online(flip_at=0).prompts(1, generator=generator(1))
    assert prompt.target == "".join(sorted(prompt.text[:-1], reverse=True))


def test_prompts_of_a_step_that_did_not_happen_are_fresh_again():
    task = Online(Sort(6), flip_at=2)
    kept = task.prompts(5, generator=generator(0))
    undone = task.prompts(5, generator=generator(1), step=3)
    task.forget(undone)
    assert task.state() == sorted(p.text for p in kept)
    assert task.prompts(5, generator=generator(1), step=3) == undone


def test_a_restored_online_task_goes_on_like_the_one_it_was():
    g = generator()
    task = Online(Sort(3))
    task.prompts(400, generator=g)
    state, place = json.loads(json.dumps(task.state())), g.get_state()
    went_on = task.prompts(100, generator=g)
    other = Online(Sort(3))
    other.restore(state)
    assert other.prompts(100, generator=generator().set_state(place)) == went_on
    assert other.state() == task.state()


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("at_once", [1, 50])
def test_online_says_so_when_no_fresh_prompt_is_left_and_does_not_hang(digits, at_once):
    task, g = Online(Sort(digits)), generator()
    drawn, error = 0, None
    for _ in range(10**digits + 1):
        try:
            drawn += len(task.prompts(at_once, generator=g))
        except ValueError as refusal:
            error = str(refusal)
            break
    wanted = rf"has \d+ fresh prompts left and {at_once} were asked for; take more digits or fewer steps"
    assert re.search(wanted, error)
    assert drawn + at_once > 0.8 * 10**digits
    assert len(task.state()) == drawn
    assert task.prompts(20, generator=g, split="held_out")  # those are never used up


# ---- bad arguments, names


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sort(0), "digits must be at least 1, got 0"),
        (lambda: Sort(33), r"digits must lie in \[1, 32\], got 33"),
        (lambda: Sort(2.5), "digits must be a whole number"),
        (lambda: Addition(1), "max_digits must be at least 2"),
        (lambda: Addition(13), "max_digits must lie in"),
        (lambda: FreeLength(2), "digits must be at least 3"),
        (lambda: FreeLength(4, max_tokens=4), "max_tokens must be at least 5"),
        (lambda: Bandit([1.0]), "a bandit has 2 to 20 arms, not 1"),
        (lambda: Bandit([0.0] * 21), "a bandit has 2 to 20 arms, not 21"),
        (lambda: Bandit([0.0, float("nan")]), "rewards must be finite numbers"),
        (lambda: Tree([0.0, 1.0]), "4 rewards, not 2"),
        (lambda: Tree([0.0, 1.0, float("inf"), 0.0]), "rewards must be finite numbers"),
        (lambda: Guess(numbers=1), "numbers must be at least 2"),
        (lambda: Guess(numbers=33), "numbers must lie in"),
        (lambda: Guess(max_turns=0), "max_turns must be at least 1"),
        (lambda: Guess(noise=1.5), r"noise must lie in \[0, 1\], got 1.5"),
        (lambda: Pool(Sort(), size=0), "size must be at least 1"),
        (lambda: Online(Addition()), "Online takes Sort"),
        (lambda: Online(flip_at=-1), "flip_at must be at least 0"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_tasks_with_other_numbers_have_other_names_since_warm_starts_are_kept_by_name():
    tasks = [
        Sort(6),
        Sort(8),
        Addition(3),
        Addition(4),
        FreeLength(4),
        FreeLength(3),
        FreeLength(4, 12),
        Guess(),
    ]
    tasks += [
        Guess(8),
        Guess(max_turns=3),
        Guess(noise=0.5),
        Pool(Sort(), 10),
        Pool(Sort(), 20),
        Online(),
        Online(flip_at=3),
    ]
    names = [task.name for task in tasks]
    assert len(set(names)) == len(names)
    assert all(c.isalnum() or c in "_.-" for name in names for c in name)  # a name becomes a folder's


@pytest.mark.parametrize(
    "name",
    [
        "sort",
        "sort6",
        "sort8",
        "addition",
        "free_length",
        "bandit",
        "tree",
        "guess",
        "sort_pool",
        "sort_online",
    ],
)
def test_named_tasks_draw_and_judge(name):
    task = named_task(name)
    (prompt,) = prompts_of(task, 1)
    assert task.reward(prompt, task.demonstration(prompt, generator=generator())) in (0.0, 1.0)
    assert named_task(name) is not task  # an online task's memory is its own


def test_an_unknown_task_lists_the_names():
    with pytest.raises(
        ValueError, match="there is no task 'sudoku'; the tasks are sort, sort6, sort8, addition"
    ):
        named_task("sudoku")
