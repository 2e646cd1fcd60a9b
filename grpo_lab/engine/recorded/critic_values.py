"""What a trained critic says along 512 real answers, and how long it took to say anything.

A critic (the policy's body with a head of width 1) learns the return of answers that the warm start wrote to training
prompts: 2,400 updates of 128 fresh answers each (16 prompts, 8 answers), AdamW, learning rate 2e-3 (rising over the
first 50 updates, falling to 0 over the last 1,200), gradient norm clipped to 1, squared loss. The policy is not
trained. The 512 recorded answers are 8 to each of 64 held-out prompts, which the critic has never seen.

    values_BT      value of the state before token t, 0 off the mask
    end_value_B    value of the state after the last token: what a critic that has seen the whole answer would say
    rewards_B      1 where the answer is right
    mask_BT        the policy's own tokens, end token included
    prompts_P, answers_B   texts as character codes (`texts_of`); row p * 8 + g is answer g to prompt p
    updates_N      after how many critic updates
    explained_N    explained variance on the 512 answers, all own tokens
    explained_NT   the same for each column by itself

Policy: data/warm_starts/sort6-S-seed0. Temperature 1.
"""

import torch
from torch import Tensor

from grpo_lab.concepts.diagnostics import explained_variance
from grpo_lab.concepts.value_loss import value_loss
from grpo_lab.engine.batch import Batch
from grpo_lab.engine.policy import Critic, Policy
from grpo_lab.engine.recording import codes_of
from grpo_lab.engine.rollout import rollout, row_noise, total_rewards
from grpo_lab.engine.tasks import Sort
from grpo_lab.engine.train import adamw
from grpo_lab.engine.warm_start import warm_start

PROMPTS, GROUP = 64, 8
UPDATES, SIZE, POOL, EVERY = 2400, 128, 2048, 40
LR, RISE = 2e-3, 50


def _answers(policy: Policy, prompts: int, group: int, seed: int, split: str) -> tuple[Batch, Tensor]:
    """Fresh answers, and the reward of each."""
    task = Sort(6)
    drawn = task.prompts(prompts, generator=torch.Generator().manual_seed(seed), split=split)
    noise_BT = row_noise(seed, range(prompts), group, task.max_tokens)
    batch = rollout(policy, task, drawn, group_size=group, noise_BT=noise_BT)
    return batch, torch.tensor(total_rewards(task, batch))


def _recorded() -> tuple[Policy, Batch, dict[str, Tensor]]:
    policy = warm_start(Sort(6), "S", seed=0)
    batch, rewards_B = _answers(policy, PROMPTS, GROUP, seed=40, split="held_out")
    return (
        policy,
        batch,
        {
            "rewards_B": rewards_B,
            "mask_BT": batch.mask_BT,
            "prompts_P": codes_of([prompt.text for prompt in batch.prompts]),
            "answers_B": codes_of([turns[0] for turns in batch.turns]),
        },
    )


def record() -> dict[str, Tensor]:
    policy, batch, known = _recorded()
    returns_BT = known["rewards_B"][:, None].expand(batch.mask_BT.shape)
    critic = Critic(policy)
    optimizer = adamw(critic.parameters(), LR)
    updates, explained = [], []
    for update in range(UPDATES + 1):
        if update % EVERY == 0:
            with torch.no_grad():
                values_BT, end_value_B = critic.values(batch)
            columns = [slice(None), *(slice(t, t + 1) for t in range(values_BT.shape[1]))]
            part = [
                explained_variance(values_BT[:, c], returns_BT[:, c], batch.mask_BT[:, c]) for c in columns
            ]
            updates.append(update)
            explained.append(torch.stack(part))
        if update == UPDATES:
            break
        if update % (POOL // SIZE) == 0:
            pool, pool_rewards_B = _answers(policy, POOL // GROUP, GROUP, seed=1000 + update, split="train")
        first = update * SIZE % POOL
        _teach(
            critic,
            optimizer,
            pool.rows(torch.arange(first, first + SIZE)),
            pool_rewards_B[first : first + SIZE],
            update,
        )
    explained = torch.stack(explained)
    return known | {
        "values_BT": values_BT,
        "end_value_B": end_value_B,
        "updates_N": torch.tensor(updates),
        "explained_N": explained[:, 0].clone(),
        "explained_NT": explained[:, 1:].clone(),
    }


def _teach(critic: Critic, optimizer, batch: Batch, rewards_B: Tensor, update: int) -> None:
    """One update towards the return: the whole reward stands at the end, so each token's return is the reward."""
    for group in optimizer.param_groups:
        group["lr"] = LR * min(1.0, (update + 1) / RISE, 2 * (1 - update / UPDATES))
    values_BT, _ = critic.values(batch)
    loss_BT = value_loss(values_BT, rewards_B[:, None].expand(values_BT.shape), batch.mask_BT)
    optimizer.zero_grad(set_to_none=True)
    (loss_BT.sum() / batch.mask_BT.sum()).backward()
    torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
    optimizer.step()


def first() -> dict[str, Tensor]:
    """The answers and their rewards, and what a critic says before its first update: nothing."""
    _, _, known = _recorded()
    return known
