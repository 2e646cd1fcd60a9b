"""The words of the course in one place: what each means, where it is built, what it is called in the code.

    from grpo_lab.teach import terms
    terms.table()                  # all of them, as a table whose rows are anchors: appendix_glossary.ipynb#advantage
    terms.find("ratio")            # only those that speak of it, in English or Chinese

The Chinese columns hold what texts from Taiwan (Traditional) and from the mainland (Simplified) say; where both keep
the English word, the column says so. They are empty for words that have no settled form.
"""

import dataclasses
import html
import re
from collections.abc import Iterable

# The chapters that a term may name, by number.
CHAPTERS = {
    "00": "the loop",
    "01": "a policy that writes",
    "02": "policy gradient",
    "03": "the clipped objective",
    "04": "values and GAE",
    "05": "the group baseline",
    "06": "KL",
    "07": "length and aggregation",
    "08": "GRPO whole",
    "09": "zero-variance groups",
    "10": "asynchrony",
    "10b": "the mismatch",
    "11": "collapse",
    "12": "DIS",
    "13": "a single rollout",
    "14": "the pendulum",
    "15": "a real language model",
}


@dataclasses.dataclass(frozen=True)
class Term:
    """One row of the glossary.

    term          the word; what stands in brackets is another name for it and not part of its anchor
    says          one or two plain sentences
    chapter       where it is built: a key of CHAPTERS
    code          its name in the code, below `grpo_lab`: a function, a class, a field, `function(parameter)`, or a
                  metric ("policy/ess"). Empty where the code has no name for it
    traditional   the word in Taiwan; simplified: on the mainland. Both or neither
    """

    term: str
    says: str
    chapter: str
    code: str = ""
    traditional: str = ""
    simplified: str = ""

    @property
    def anchor(self) -> str:
        """What stands behind the # of a link to this row: `anchor("TD error")` is "td-error"."""
        return anchor(self.term)


def anchor(term: str) -> str:
    """The word in small letters, without brackets, with one hyphen for anything but letters and digits."""
    bare = re.sub(r"\(.*?\)", "", term).lower()
    return re.sub(r"[^a-z0-9]+", "-", bare).strip("-")


TERMS = (
    Term(
        "action",
        "What the policy chooses in a state. Here it is the next token.",
        "01",
        "engine.batch.Batch.tokens_BT",
        "動作",
        "动作",
    ),
    Term(
        "advantage",
        "How much better an action turned out than expected: its return minus a baseline. Above 0 its probability"
        " is pushed up, below 0 down.",
        "02",
        "engine.batch.Batch.advantages_BT",
        "優勢（函數）",
        "优势（函数）",
    ),
    Term(
        "aggregation",
        "How one loss a token becomes one number: by answer, by token, or over a constant. It decides how much a "
        "token of a long answer counts.",
        "07",
        "concepts.aggregate.weighted_sum",
    ),
    Term(
        "answer (completion)",
        "What the policy writes after a prompt, its end token included. Papers also say completion, response, "
        "output.",
        "00",
        "engine.batch.Batch.turns",
        "回答",
        "回答",
    ),
    Term(
        "asynchronous",
        "Writing and training run at the same time, so answers are some updates old when they are learned from.",
        "10",
        "engine.staleness.Arrivals",
        "非同步",
        "异步",
    ),
    Term(
        "bandit",
        "The smallest task: one choice, one reward, and it is over.",
        "02",
        "engine.tasks.Bandit",
        "拉霸機問題",
        "老虎机问题（赌博机）",
    ),
    Term(
        "baseline",
        "What was expected before the action was seen; it is subtracted from the return. As long as it doesn't "
        "depend on the action it changes the noise of the gradient and not its average.",
        "02",
        "concepts.group_advantage.group_mean_advantage",
        "基準線（基線）",
        "基线",
    ),
    Term(
        "batch",
        "The answers that one policy update learns from.",
        "00",
        "engine.batch.Batch",
        "批次",
        "批次（批）",
    ),
    Term(
        "bias",
        "How far the average of an estimate is from what it should be. More samples don't make it smaller.",
        "02",
        "",
        "偏差",
        "偏差",
    ),
    Term(
        "bootstrapping",
        "To put a guessed value in the place of rewards that haven't been seen.",
        "04",
        "engine.recipes.CriticPlan.bootstrap",
        "自助（自舉）",
        "自举",
    ),
    Term(
        "CISPO",
        "A loss that caps the importance ratio, detached, and multiplies A * logp by it: no token loses its "
        "gradient, and none counts more than the cap.",
        "12",
        "engine.recipes.Recipe.policy_loss",
    ),
    Term(
        "clip fraction",
        "The share of tokens whose policy loss has gradient 0 because they are beyond the band, on the side they "
        "were pushed to.",
        "03",
        "concepts.diagnostics.clip_fraction",
        "裁剪比例",
        "裁剪比例",
    ),
    Term(
        "clip-higher",
        "A wider band above 1 than below, 0.28 against 0.2 in DAPO, so that rare tokens have room to grow.",
        "03",
        "concepts.clipped_surrogate.clipped_surrogate(eps_high)",
        "clip-higher（保留英文）",
        "clip-higher（保留英文）",
    ),
    Term(
        "clipping",
        "To stop pushing a token once its ratio has left the band 1 - eps_low to 1 + eps_high in the direction of"
        " the push. It lets go; it doesn't pull back.",
        "03",
        "concepts.clipped_surrogate.clipped_surrogate",
        "裁剪（截斷）",
        "裁剪（截断）",
    ),
    Term(
        "collapse",
        "A run whose reward falls and doesn't come back.",
        "11",
        "",
        "訓練崩潰",
        "训练崩溃",
    ),
    Term(
        "confidence interval",
        "A range from a rule that covers the true value in a stated share of repetitions, 95 % here. Our bands "
        "are those of a mean over seeds.",
        "03",
        "teach.plots.band",
        "信賴區間",
        "置信区间",
    ),
    Term(
        "critic",
        "A network that guesses the value of each state.",
        "04",
        "engine.policy.Critic",
        "評論家（critic）",
        "评论家（critic）",
    ),
    Term(
        "cut off",
        "An answer that reached the longest allowed length before it ended by itself.",
        "01",
        "response/cut_off_frac",
        "截斷",
        "截断",
    ),
    Term(
        "DAPO",
        "GRPO with four changes: clip-higher, no zero-variance groups in the batch, a mean over tokens, a penalty"
        " for overlong answers. It has no KL term.",
        "08",
        "concepts.aggregate.token_mean",
        "DAPO（保留英文）",
        "DAPO（保留英文）",
    ),
    Term(
        "dead group",
        "Another name for a zero-variance group.",
        "09",
        "group/zero_variance_frac",
    ),
    Term(
        "decoupled PPO",
        "Two policies below the line instead of one: the sampler's in the weight, a newer one in the clip.",
        "10b",
        "engine.recipes.Recipe.weight",
    ),
    Term(
        "DIS",
        "Direct double-sided importance sampling: a token counts with its ratio to the sampler inside a band, and"
        " not at all outside, whatever the sign of its advantage.",
        "12",
        "policy/masked_frac",
        "DIS（保留英文）",
        "DIS（保留英文）",
    ),
    Term(
        "Dr. GRPO",
        "GRPO without two divisions: that of the advantage by the group's spread, and that of the loss by the "
        "answer's length.",
        "07",
        "concepts.aggregate.constant_mean",
        "Dr. GRPO（保留英文）",
        "Dr. GRPO（保留英文）",
    ),
    Term(
        "dual clip",
        "One more bound, for negative advantages only: beyond ratio delta the token is dropped instead of pushed "
        "ever harder.",
        "03",
        "concepts.clipped_surrogate.clipped_surrogate(delta)",
        "dual clip（保留英文）",
        "dual clip（保留英文）",
    ),
    Term(
        "dynamic sampling",
        "To leave zero-variance groups out and write more answers until the batch is full.",
        "09",
        "engine.recipes.Recipe.keep",
        "動態取樣",
        "动态采样",
    ),
    Term(
        "end token",
        "The token by which an answer ends itself. It is the policy's own choice, and counts as one.",
        "01",
        "engine.policy.Policy(end_ids)",
        "結束詞元",
        "结束词元（结束符）",
    ),
    Term(
        "entropy",
        "How undecided the policy is about the next token, in nats: 0 if it is certain, log V if all V tokens are"
        " equally likely.",
        "11",
        "concepts.diagnostics.entropy",
        "熵",
        "熵",
    ),
    Term(
        "entropy collapse",
        "The policy gets certain so early that all answers to a prompt are the same, and nothing is left to "
        "compare.",
        "11",
        "policy/entropy",
        "熵崩塌",
        "熵坍缩",
    ),
    Term(
        "episode",
        "One run of a task from start to end: a prompt and its answer, or a talk of several turns.",
        "00",
        "engine.tasks.Task.reply",
        "回合",
        "回合",
    ),
    Term(
        "epoch",
        "One pass over the same batch.",
        "03",
        "engine.recipes.Recipe.epochs",
    ),
    Term(
        "ESS (effective sample size)",
        "How many equally weighted samples a weighted sum is worth. We print it as a share: 1 if all weights are "
        "equal, 1/n if one outweighs the rest.",
        "03",
        "concepts.diagnostics.effective_sample_size",
        "有效樣本數",
        "有效样本量",
    ),
    Term(
        "explained variance",
        "The share of the returns' variance that the critic foresaw. 1 is perfect, 0 is no better than their "
        "mean, and below 0 is worse.",
        "04",
        "concepts.diagnostics.explained_variance",
        "解釋變異量",
        "可解释方差",
    ),
    Term(
        "GAE (generalized advantage estimation)",
        "An advantage summed from TD errors, each weighted by gamma * lambda once more: one dial between trusting"
        " the critic and waiting for the rewards.",
        "04",
        "concepts.gae.gae",
        "廣義優勢估計",
        "广义优势估计",
    ),
    Term(
        "gamma (γ, discount)",
        "How much a reward one step later counts. It is 1 in this course unless a chapter says otherwise.",
        "02",
        "concepts.policy_gradient.reward_to_go(gamma)",
        "折扣因子",
        "折扣因子",
    ),
    Term(
        "gradient",
        "For each weight, how fast the loss grows with it. An update goes the other way.",
        "02",
        "optim/grad_norm",
        "梯度",
        "梯度",
    ),
    Term(
        "greedy",
        "To take the most likely token each time.",
        "01",
        "eval/greedy_accuracy",
        "貪婪",
        "贪心",
    ),
    Term(
        "group",
        "The answers to one and the same prompt in a batch.",
        "05",
        "concepts.group_advantage.group_advantage",
        "組（群組）",
        "组",
    ),
    Term(
        "group size",
        "How many answers a group has: G.",
        "05",
        "engine.recipes.Recipe.group_size",
        "組的大小",
        "组大小",
    ),
    Term(
        "GRPO",
        "Group relative policy optimization: PPO's clip, and the other answers to the same prompt instead of a "
        "critic.",
        "08",
        "engine.recipes.grpo",
        "群組相對策略最佳化",
        "组相对策略优化",
    ),
    Term(
        "GSPO",
        "GRPO with one ratio an answer: the geometric mean of its tokens' ratios. Whole answers are clipped, not "
        "tokens.",
        "07",
        "concepts.importance_ratio.sequence_ratio",
        "GSPO（保留英文）",
        "GSPO（保留英文）",
    ),
    Term(
        "held-out",
        "Prompts that training never sees; accuracy is measured on them.",
        "00",
        "engine.tasks.is_held_out",
        "保留集",
        "留出集",
    ),
    Term(
        "IcePop",
        "A token whose trainer and sampler disagree beyond a band gets weight 0; inside, the ratio of the two is "
        "its weight.",
        "10b",
        "engine.recipes.Recipe.weight",
        "IcePop（保留英文）",
        "IcePop（保留英文）",
    ),
    Term(
        "importance ratio",
        "The probability of a token under the policy being trained, divided by that under the policy that wrote "
        "it.",
        "03",
        "concepts.importance_ratio.importance_ratio",
        "重要性比率",
        "重要性比率（重要性权重）",
    ),
    Term(
        "importance sampling",
        "To learn about one policy from what another wrote, by weighting each sample with the ratio of their "
        "probabilities.",
        "03",
        "concepts.importance_ratio.rollout_ratio",
        "重要性取樣（重要性抽樣）",
        "重要性采样",
    ),
    Term(
        "k1 (KL estimator)",
        "logp - logp_ref. On average it is the KL, with much noise. Its place is in the reward: as a loss its "
        "gradient is 0 on average.",
        "06",
        "concepts.kl.k1",
    ),
    Term(
        "k2 (KL estimator)",
        "Half the square of logp - logp_ref. A little off in value; as a loss it has the right gradient, token by"
        " token.",
        "06",
        "concepts.kl.k2",
    ),
    Term(
        "k3 (KL estimator)",
        "u - 1 - log u with u = exp(logp_ref - logp): right on average and never negative. As a loss it has the "
        "gradient of the KL in the other direction.",
        "06",
        "concepts.kl.k3",
    ),
    Term(
        "KL divergence",
        "How far one distribution is from another: the average of log p - log q over samples from p. 0 if they "
        "are the same. Which of the two comes first matters.",
        "06",
        "concepts.kl.exact_kl",
        "KL 散度",
        "KL 散度",
    ),
    Term(
        "lag",
        "The delay that we set: how many updates a batch waits before it is learned from.",
        "10",
        "engine.staleness.lag",
    ),
    Term(
        "lambda (λ)",
        "GAE's dial. 1 uses the rewards alone, with the critic as baseline; 0 trusts the critic after one step.",
        "04",
        "concepts.gae.gae(lam)",
    ),
    Term(
        "leave-one-out (RLOO)",
        "A baseline for each answer from the other answers of its group only, so that it doesn't contain what it "
        "judges.",
        "05",
        "concepts.group_advantage.leave_one_out_advantage",
        "留一法",
        "留一法",
    ),
    Term(
        "length bias",
        "A pull on the length of answers that comes from the loss and not from the task.",
        "07",
        "concepts.aggregate.sequence_mean",
        "長度偏差",
        "长度偏差",
    ),
    Term(
        "log-probability",
        "The natural logarithm of a probability. Those of an answer's tokens add up to that of the answer.",
        "01",
        "concepts.token_logprobs.token_logprobs",
        "對數機率",
        "对数概率",
    ),
    Term(
        "logits",
        "The raw scores of the next tokens, before softmax turns them into probabilities.",
        "01",
        "concepts.token_logprobs.token_logprobs(logits_BSV)",
    ),
    Term(
        "loss",
        "The number whose gradient the optimizer follows downhill. In policy gradient it is a tool, and says "
        "nothing about progress.",
        "02",
        "policy/loss",
        "損失",
        "损失",
    ),
    Term(
        "majority vote",
        "To sample several answers and give the most frequent one.",
        "05",
        "",
        "多數決",
        "多数投票",
    ),
    Term(
        "mask",
        "True where a token is the policy's own, end token included; False on prompt, observation and padding.",
        "01",
        "engine.batch.Batch.mask_BT",
        "遮罩",
        "掩码",
    ),
    Term(
        "minibatch",
        "A part of the batch that one optimizer step uses. Ours are whole groups.",
        "03",
        "engine.recipes.Recipe.minibatches",
        "小批次",
        "小批量",
    ),
    Term(
        "mismatch",
        "Trainer and sampler have the same weights and yet give a token different probabilities.",
        "10b",
        "policy/kl_rollout",
        "訓練與推論不一致",
        "训推不一致",
    ),
    Term(
        "Monte Carlo",
        "To estimate an average by sampling. As a value target: the return itself, without a guess in it.",
        "04",
        "engine.recipes.CriticPlan.lam_target",
        "蒙地卡羅",
        "蒙特卡洛",
    ),
    Term(
        "observation",
        "Text that the environment put into an episode, not the policy. It is read, and gets no loss.",
        "04",
        "engine.batch.Batch.attend_BT",
        "觀測",
        "观测",
    ),
    Term(
        "off-policy",
        "Learning from what another policy wrote, an older version of the same one included.",
        "03",
        "engine.batch.Batch.logp_rollout_BT",
        "異策略",
        "异策略（也作离线策略）",
    ),
    Term(
        "on-policy",
        "Learning from what the policy itself wrote, with the weights it has now.",
        "02",
        "engine.staleness.lag(updates)",
        "同策略",
        "同策略（也作在线策略）",
    ),
    Term(
        "pass@k",
        "The probability that at least one of k answers is right.",
        "05",
        "",
        "pass@k（保留英文）",
        "pass@k（保留英文）",
    ),
    Term(
        "policy",
        "What decides: given what stands there, a probability for each next token. Here, a language model.",
        "00",
        "engine.policy.Policy",
        "策略",
        "策略",
    ),
    Term(
        "policy gradient",
        "To raise the expected reward by following the gradient of each action's log-probability, weighted by how"
        " well it went.",
        "02",
        "concepts.policy_gradient.policy_gradient",
        "策略梯度",
        "策略梯度",
    ),
    Term(
        "PPO (proximal policy optimization)",
        "Policy gradient with a critic and a clip, so that one batch can serve several updates.",
        "04",
        "engine.recipes.ppo",
        "近端策略最佳化",
        "近端策略优化",
    ),
    Term(
        "prompt",
        "What the policy reads before it writes.",
        "00",
        "engine.tasks.Prompt",
        "提示（詞）",
        "提示（词）",
    ),
    Term(
        "queue",
        "Where finished answers wait until an update takes them.",
        "10",
        "engine.staleness.Queue",
        "佇列",
        "队列",
    ),
    Term(
        "recipe",
        "Our word for a training method: one function for each slot of the loop.",
        "00",
        "engine.recipes.Recipe",
    ),
    Term(
        "reference policy",
        "A frozen copy, usually of the start; the KL term measures how far the policy has gone from it.",
        "06",
        "engine.batch.Batch.logp_ref_BT",
        "參考策略（參考模型）",
        "参考策略（参考模型）",
    ),
    Term(
        "REINFORCE",
        "The plain policy gradient: no ratio, no clip, and in its simplest form no baseline.",
        "02",
        "engine.recipes.reinforce",
        "REINFORCE（保留英文）",
        "REINFORCE（保留英文）",
    ),
    Term(
        "reinforcement learning",
        "Learning from rewards for what one tried, without being shown the right answer.",
        "00",
        "engine.train.step",
        "強化學習",
        "强化学习",
    ),
    Term(
        "rejection sampling",
        "Here: to sample many answers, keep the right ones, and train on them as on examples.",
        "05",
        "engine.recipes.Recipe.keep",
        "拒絕取樣（拒絕抽樣）",
        "拒绝采样",
    ),
    Term(
        "return",
        "The rewards of an episode added up from some point on, later ones discounted by gamma.",
        "02",
        "engine.batch.Batch.returns_BT",
        "回報",
        "回报",
    ),
    Term(
        "reward",
        "The number that says how good something was.",
        "00",
        "engine.batch.Batch.rewards_BT",
        "獎勵",
        "奖励",
    ),
    Term(
        "reward hacking",
        "To get the reward without doing what it was meant to reward.",
        "11",
        "",
        "獎勵駭客（獎勵操弄）",
        "奖励黑客（reward hacking）",
    ),
    Term(
        "reward model",
        "A network, trained on people's choices between answers, that gives an answer a number.",
        "00",
        "",
        "獎勵模型",
        "奖励模型",
    ),
    Term(
        "reward-to-go",
        "The return from a token on: what came after it, and nothing that came before.",
        "02",
        "concepts.policy_gradient.reward_to_go",
        "reward-to-go（保留英文）",
        "reward-to-go（保留英文）",
    ),
    Term(
        "rollout",
        "Letting the policy write answers; also one answer that came of it.",
        "00",
        "engine.rollout.rollout",
        "rollout（多保留英文）",
        "rollout（多保留英文，也说采样）",
    ),
    Term(
        "SAO",
        "Single-rollout asynchronous optimization: one answer a prompt, a critic instead of a group, and DIS "
        "against stale tokens.",
        "13",
        "engine.recipes.CriticPlan",
        "SAO（保留英文）",
        "SAO（保留英文）",
    ),
    Term(
        "seed (paired seeds)",
        "The number that starts a random generator. Paired: both arms of a comparison get the same ones, so that "
        "their luck cancels in the difference.",
        "02",
        "engine.experiment.experiment(seeds)",
        "隨機種子",
        "随机种子",
    ),
    Term(
        "staleness",
        "How many updates were made between a token's writing and its learning.",
        "10",
        "rollout/staleness",
        "過時程度（陳舊度）",
        "陈旧度",
    ),
    Term(
        "standard deviation",
        "The spread of some numbers around their mean. With ddof 1 the squares are divided by n - 1, with ddof 0 "
        "by n.",
        "05",
        "group/reward_std",
        "標準差",
        "标准差",
    ),
    Term(
        "state",
        "What the policy sees when it chooses: the prompt and all tokens so far.",
        "01",
        "engine.batch.Batch.prompt_ids_PL",
        "狀態",
        "状态",
    ),
    Term(
        "supervised fine-tuning",
        "Training on given answers: raise the probability of each token that stands there.",
        "00",
        "engine.warm_start.supervised_update",
        "監督式微調",
        "监督微调",
    ),
    Term(
        "surrogate objective",
        "A function that is climbed instead of the expected reward, and has the same gradient where the policy "
        "hasn't moved yet.",
        "03",
        "concepts.clipped_surrogate.clipped_surrogate",
        "代理目標（替代目標）",
        "代理目标（替代目标）",
    ),
    Term(
        "TD error",
        "The reward plus the value of what follows, minus the value that was expected: by how much the critic was"
        " surprised.",
        "04",
        "concepts.gae.gae(values_BT)",
        "時序差分誤差",
        "时序差分误差",
    ),
    Term(
        "temperature",
        "Divides the logits before sampling. Below 1 the likely tokens get likelier, above 1 the rare ones do.",
        "01",
        "engine.rollout.rollout(temperature)",
        "溫度",
        "温度",
    ),
    Term(
        "TIS",
        "Truncated importance sampling: the ratio of trainer to sampler as a weight, cut at a cap.",
        "10b",
        "engine.recipes.Recipe.weight",
        "TIS（保留英文）",
        "TIS（保留英文）",
    ),
    Term(
        "token",
        "The unit in which the policy reads and writes; here mostly one character.",
        "01",
        "engine.tokenizer.toy_tokenizer",
        "詞元（多直接說 token）",
        "词元（也直接说 token）",
    ),
    Term(
        "trajectory",
        "Everything that happened in an episode, in order: states, actions, rewards.",
        "02",
        "engine.batch.Batch",
        "軌跡",
        "轨迹",
    ),
    Term(
        "trust region",
        "The neighbourhood of the old policy in which a step is believed. The clip is a cheap stand-in for it, "
        "and no guarantee.",
        "03",
        "concepts.clipped_surrogate.clipped_surrogate",
        "信賴域",
        "信任域（信赖域）",
    ),
    Term(
        "update",
        "One step of the optimizer.",
        "03",
        "count/updates",
        "更新",
        "更新",
    ),
    Term(
        "value",
        "The return to be expected from a state on, under the policy.",
        "04",
        "engine.batch.Batch.values_BT",
        "價值（函數）",
        "价值（函数）",
    ),
    Term(
        "VAPO",
        "PPO for long answers: a critic trained beforehand, lambda 1 for the critic and one that grows with the "
        "answer's length for the policy.",
        "13",
        "engine.recipes.CriticPlan.lam_target",
    ),
    Term(
        "variance",
        "How widely an estimate scatters around its own average, from batch to batch. More samples make it "
        "smaller.",
        "02",
        "concepts.masked.masked_var",
        "變異數",
        "方差",
    ),
    Term(
        "verifiable reward",
        "A reward that a program can compute: the answer is equal to the solution, the tests pass.",
        "00",
        "engine.tasks.Task.reward",
        "可驗證獎勵",
        "可验证奖励",
    ),
    Term(
        "version",
        "How many policy updates had been made when a token was written. Each token carries its own.",
        "10",
        "engine.batch.Batch.version_BT",
        "版本",
        "版本",
    ),
    Term(
        "vocabulary",
        "All tokens there are: V of them.",
        "01",
        "engine.tasks.Task.alphabet",
        "詞彙表",
        "词表",
    ),
    Term(
        "warm start",
        "To begin with a policy that is right now and then: where nothing is ever right, there is nothing to "
        "reinforce.",
        "00",
        "engine.warm_start.warm_start",
        "暖啟動（熱啟動）",
        "热启动",
    ),
    Term(
        "whitening",
        "To shift and scale numbers to mean 0 and standard deviation 1.",
        "04",
        "concepts.masked.masked_whiten",
        "白化（標準化）",
        "白化（标准化）",
    ),
    Term(
        "zero-variance group",
        "A group whose answers all got the same reward. Every advantage is 0, and so is the policy's gradient.",
        "09",
        "concepts.diagnostics.zero_variance_fraction",
        "零變異數的組",
        "零方差组",
    ),
)


class Table:
    """Terms as a table: HTML in a notebook, text elsewhere. With anchors, a chapter can link to a row.

    JupyterLab renames an id to data-jupyter-id where it cleans HTML, and looks for that name when it follows a link; a
    page of the site looks for the id. So each anchor carries both.
    """

    def __init__(self, terms: Iterable[Term], *, anchors: bool = False):
        self.terms, self.anchors = tuple(terms), anchors

    def __len__(self) -> int:
        return len(self.terms)

    def __repr__(self) -> str:
        return "\n".join(self._line(term) for term in self.terms) or "no such term"

    @staticmethod
    def _line(term: Term) -> str:
        chinese = f" | {term.traditional} | {term.simplified}" if term.traditional else ""
        code = f" | {term.code}" if term.code else ""
        return f"{term.term}: {term.says} | chapter {term.chapter}{code}{chinese}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        if not self.terms:
            return {"text/plain": repr(self)}
        heads = (("term", 20), ("what it is; where it is built, and its name in the code", 56), ("中文", 24))
        head = "".join(f'<th scope="col" style="text-align:left;width:{w}%">{h}</th>' for h, w in heads)
        rows = "\n".join(self._row(term) for term in self.terms)
        page = f'<table style="width:100%"><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>'
        return {"text/html": page, "text/plain": repr(self)}

    def _row(self, term: Term) -> str:
        place = f'<a id="{term.anchor}" data-jupyter-id="{term.anchor}"></a>' if self.anchors else ""
        where = f"{term.chapter} {CHAPTERS[term.chapter]}"
        if term.code:
            # A long name may break behind each dot, so that it doesn't squeeze the sentence beside it.
            where += f" · <code>{html.escape(term.code).replace('.', '.<wbr>')}</code>"
        said = f"{html.escape(term.says)}<br><small>{where}</small>"
        chinese = ""
        if term.traditional:
            chinese = f'<span lang="zh-Hant-TW">{term.traditional}</span>'
            chinese += f'<br><span lang="zh-Hans-CN">{term.simplified}</span>'
        left = 'style="text-align:left;vertical-align:top"'
        name = f'<th scope="row" {left}>{place}{html.escape(term.term)}</th>'
        return f"<tr>{name}<td {left}>{said}</td><td {left}>{chinese}</td></tr>"


def find(words: str) -> Table:
    """The terms that speak of `words`, in any column, small and capital letters alike. Without anchors."""
    if not isinstance(words, str):
        raise TypeError(f"find takes a word, as in find('ratio'); got {words!r}.")
    wanted = words.casefold()
    return Table(
        term for term in TERMS if any(wanted in str(v).casefold() for v in dataclasses.astuple(term))
    )


def table() -> Table:
    """The whole glossary, in the alphabet's order, each row an anchor."""
    return Table(TERMS, anchors=True)
