# %% [markdown]
# # Appendix · Sources
#
# **The promise.** For each paper, post and library that the course rests on: what rests on it, and how much of it was
# read before we wrote.
#
# - **You need:** nothing.
# - **Minutes:** none to read through.
#
# ## How to read the list
#
# After *Here* stands what rests on the source, with the chapters in brackets. After *Read* stands one of these:
#
# - **text**: the text itself, or the sections named;
# - **abstract**: the abstract, and the first page where that is said;
# - **second hand**: somebody else's summary; several that agree where that is said;
# - **source code**: the release named was read, and what the course says of it is tested against it where possible;
# - **not re-read**: known for long, cited from memory.
#
# What the course computes or measures itself is in none of these lists: the chapter names the cell, the test or the
# recorded run. Where a chapter prints a number that is second hand here, it is to say so there, too.

# %% [markdown]
# ## Policy gradient, the clip, values
#
# - R. J. Williams 1992, *Simple statistical gradient-following algorithms for connectionist reinforcement learning*,
#   Machine Learning 8, 229-256, https://doi.org/10.1007/BF00992696. *Here:* REINFORCE, and that a baseline doesn't
#   move the mean (02). *Read:* not re-read; both statements are checked by enumeration in the tests.
# - R. S. Sutton and A. G. Barto 2018, *Reinforcement Learning: An Introduction*, 2nd edition, equation 3.9,
#   http://incompleteideas.net/book/the-book-2nd.html. *Here:* return, value, TD error (02, 04). *Read:* not re-read.
# - E. Greensmith, P. Bartlett and J. Baxter 2004, *Variance Reduction Techniques for Gradient Estimates in
#   Reinforcement Learning*, https://www.jmlr.org/papers/v5/greensmith04a.html. *Here:* how much a baseline
#   can save, and which constant is best (02). *Read:* not re-read.
# - R. Keane and H. O. Gao 2022, *Variance Reduction for Score Functions Using Optimal Baselines*,
#   https://arxiv.org/abs/2212.13587. *Here:* a value baseline is mostly about as good as the best one, and can be
#   arbitrarily worse (02). *Read:* abstract.
# - J. Schulman, P. Moritz, S. Levine, M. Jordan and P. Abbeel 2016, *High-Dimensional Continuous Control Using
#   Generalized Advantage Estimation*, https://arxiv.org/abs/1506.02438. *Here:* what may stand in the
#   advantage's place (02), GAE and its two ends (04). *Read:* abstract and introduction; the formula agrees with
#   TorchRL's in a test.
# - J. Schulman, F. Wolski, P. Dhariwal, A. Radford and O. Klimov 2017, *Proximal Policy Optimization Algorithms*,
#   https://arxiv.org/abs/1707.06347. *Here:* ratio, clip, min and its four cases (03), value loss (04). *Read:*
#   abstract and introduction; equation and figure numbers from memory.
# - S. Huang, R. Dossa, A. Raffin, A. Kanervisto and W. Wang 2022, *The 37 Implementation Details of Proximal Policy
#   Optimization*, https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/. *Here:* the clip of the
#   value loss, whitened advantages (04). *Read:* not re-read.
# - D. Ye et al. 2020, *Mastering Complex Control in MOBA Games with Deep Reinforcement Learning*,
#   https://arxiv.org/abs/1912.09729. *Here:* dual clip (03). *Read:* abstract; the usual bound 3 is second hand.
# - Prime Intellect 2025, *INTELLECT-2*, https://arxiv.org/abs/2505.07291. *Here:* the same bound for language models
#   (03). *Read:* second hand: TRL's documentation of the paper's settings, delta 4 among them.
# - A. Owen, *Monte Carlo theory, methods and examples*, chapter 9, after A. Kong 1992 (Technical Report 348,
#   University of Chicago), https://artowen.su.domains/mc/. *Here:* importance sampling, effective sample size (03, 10).
#   *Read:* not re-read; the formula's limits are tests.
# - J. Hilton, K. Cobbe and J. Schulman 2022, *Batch size-invariance for policy optimization*,
#   https://arxiv.org/abs/2110.00641. *Here:* the old policy has two jobs, and they can be given to two policies (10b).
#   *Read:* abstract and introduction.
# - Y. Bengio, R. Ducharme, P. Vincent and C. Jauvin 2003, *A Neural Probabilistic Language Model*,
#   https://www.jmlr.org/papers/v3/bengio03a.html. *Here:* an answer's probability is a product over its tokens (01).
#   *Read:* not re-read.
# - C. Shannon 1948, *A Mathematical Theory of Communication*, section 6,
#   https://doi.org/10.1002/j.1538-7305.1948.tb01338.x. *Here:* entropy (11). *Read:* not re-read.

# %% [markdown]
# ## GRPO and its relatives
#
# - L. Ouyang et al. 2022, *Training language models to follow instructions with human feedback*,
#   https://arxiv.org/abs/2203.02155. *Here:* what a reward model is (01). *Read:* not re-read; cited from memory.
# - N. Lambert et al. 2024, *Tulu 3*, https://arxiv.org/abs/2411.15124. *Here:* the words "verifiable rewards" (01).
#   *Read:* abstract.
# - Z. Shao et al. 2024, *DeepSeekMath*, https://arxiv.org/abs/2402.03300. *Here:* the group baseline and the division
#   by the spread (05), k3 in the loss (06), the mean over each answer (07), one update a batch (03, 08). *Read:* text
#   of the training details in section 4.2; equations 3 and 4 by way of libraries that implement them.
# - DeepSeek-AI 2025, *DeepSeek-R1*, https://arxiv.org/abs/2501.12948. *Here:* 16 minibatches a rollout (03), GRPO at
#   scale (08). *Read:* text of the training details of R1-Zero. That the last stage also used reward models for
#   preferences: second hand, a quotation of section 2.3.4. The clip bound 10: second hand, not found again.
# - Z. Liu, C. Chen, W. Li, P. Qi, T. Pang, C. Du, W. S. Lee and M. Lin 2025, *Understanding R1-Zero-Like Training*
#   (Dr. GRPO), https://arxiv.org/abs/2503.20783. *Here:* the advantage without the division (05), the length bias
#   (07). *Read:* abstract and figure 1; the algebra is tested.
# - W. Kool, H. van Hoof and M. Welling 2019, *Buy 4 REINFORCE Samples, Get a Baseline for Free!*,
#   https://openreview.net/forum?id=r1lgTGL5DE. *Here:* leave-one-out (05). *Read:* abstract; that its gradient is
#   unbiased is checked by enumeration.
# - A. Ahmadian et al. 2024, *Back to Basics*, https://arxiv.org/abs/2402.14740. *Here:* leave-one-out for language
#   models; the whole answer as one action (05). *Read:* abstract.
# - J. Hu, J. K. Liu, H. Xu and W. Shen 2025, *REINFORCE++*, https://arxiv.org/abs/2501.03262. *Here:* advantages over
#   the whole batch, no group needed (05, 13). *Read:* abstract. Versions 2, 8 and 9 claim different things for it; we
#   follow the ninth.
# - Z. Liu et al. 2025, *Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning* (Lite PPO),
#   https://arxiv.org/abs/2508.08221. *Here:* the group's mean over the batch's spread (05). *Read:* second hand, two
#   summaries that agree.
# - D. Davis and B. Recht 2025, *What is the objective of reasoning with reinforcement learning?*,
#   https://arxiv.org/abs/2510.13651. *Here:* with 0/1 rewards GRPO climbs the arcsine of the root of the pass rate,
#   rejection sampling its logarithm (05). *Read:* abstract and first page; the slope is computed in chapter 05.
# - M. Chen et al. 2021, *Evaluating Large Language Models Trained on Code*, https://arxiv.org/abs/2107.03374. *Here:*
#   the unbiased pass@k (05). *Read:* second hand: several implementations with the same formula.
# - Q. Yu et al. 2025, *DAPO*, https://arxiv.org/abs/2503.14476. *Here:* clip-higher (03), the mean over tokens (07),
#   dynamic sampling (09). *Read:* abstract and the recipe's documentation in verl. 512 prompts of 16 answers and 16
#   updates a rollout: second hand, not found again.
# - C. Zheng et al. 2025, *Group Sequence Policy Optimization*, https://arxiv.org/abs/2507.18071. *Here:* one ratio an
#   answer (07). *Read:* second hand: a reader who compared with the paper confirms the bounds 3e-4 and 4e-4 and that
#   it clips about a hundred times as many tokens as GRPO. The two exact shares were not found again.
# - MiniMax 2025, *MiniMax-M1* (CISPO), https://arxiv.org/abs/2506.13585. *Here:* the capped weight with the gradient
#   stopped (12). *Read:* second hand, three summaries with the same formula.
# - Y. Yue et al. 2025, *VAPO*, https://arxiv.org/abs/2504.05118. *Here:* the critic trained beforehand, a lambda that
#   grows with the length (13). *Read:* abstract. alpha = 0.05: second hand.
# - V. Shrivastava et al. 2025, *Sample More to Think Less* (GFPO), https://arxiv.org/abs/2508.09726. *Here:* keep the
#   short answers of a larger group (07). *Read:* abstract.
# - N. Lambert, *Reinforcement Learning from Human Feedback* (a book), https://rlhfbook.com. *Here:* that Dr. GRPO's
#   advantage is (G − 1)/G of leave-one-out's (05). *Read:* text of that passage; it is also a test.

# %% [markdown]
# ## KL
#
# - J. Schulman 2020, *Approximating KL Divergence*, http://joschu.net/blog/kl-approx.html. *Here:* k1, k2, k3 as
#   values (06). *Read:* text.
# - S. Kullback and R. Leibler 1951, *On Information and Sufficiency*, https://doi.org/10.1214/aoms/1177729694. *Here:*
#   the sum itself (06). *Read:* not re-read.
# - D. Ziegler et al. 2019, *Fine-Tuning Language Models from Human Preferences*, https://arxiv.org/abs/1909.08593.
#   *Here:* the log ratio to the reference, subtracted from the reward (06). *Read:* second hand, the formula.
# - K. Liu, J. K. Liu, M. Chen and Y. Liu 2025, *Rethinking KL Regularization in RLHF*,
#   https://arxiv.org/abs/2510.01555. *Here:* k1 in the reward and k2 as a loss have the same gradient on-policy, k3 as
#   a loss another (06). *Read:* abstract; our own check is exact, on a small vocabulary.
# - V. Shah et al. 2025, *A Comedy of Estimators*, https://arxiv.org/abs/2512.21852. *Here:* which placements train
#   worse (06). *Read:* abstract; that k1 in the loss and k3 in the reward are the bad ones is second hand.
# - DeepSeek-AI 2025, *DeepSeek-V3.2*, https://arxiv.org/abs/2512.02556. *Here:* k3 times the ratio, differentiated
#   through both (06). *Read:* second hand, three readers' notes that agree; the gradient is a test.

# %% [markdown]
# ## Zero-variance groups
#
# - X. He et al. 2026, *Advantage Collapse in Group Relative Policy Optimization*, https://arxiv.org/abs/2605.21125.
#   *Here:* how the share of such groups goes with the final accuracy (09). *Read:* abstract and figure 1: R² = 0.617
#   over 245 configurations. The range 28 to 45 %: second hand.
# - H. Zheng et al. 2025, *Act Only When It Pays* (GRESO), https://arxiv.org/abs/2506.02177. *Here:* prompts that
#   taught nothing rarely teach later (09). *Read:* abstract: up to 2.4 times in rollout, 2.0 in all.
# - T.-L. V. Le, M. Jeon, K. Vu, V. Lai and E. Yang 2025, *No Prompt Left Behind* (RL-ZVP),
#   https://arxiv.org/abs/2509.21880. *Here:* the opposite view: such groups can be used (09). *Read:* abstract.

# %% [markdown]
# ## Asynchrony, the mismatch, collapse
#
# - W. Fu et al. 2025, *AReaL*, https://arxiv.org/abs/2505.24298. *Here:* accuracy against the staleness bound, the
#   decoupled clip (10, 10b). *Read:* text of sections 4 to 7 with table 2; the abstract's 2.77 was seen again.
# - F. Yao et al. 2025, *Your Efficient RL Framework Secretly Brings You Off-Policy RL Training* (TIS),
#   https://fengyao.notion.site/off-policy-rl. *Here:* trainer and sampler disagree; a capped weight (10b). *Read:*
#   second hand, its slides and a reader's notes.
# - J. Liu, Y. Li et al. 2025, *When Speed Kills Stability*, https://richardli.xyz/rl-collapse. *Here:* four runs that
#   crashed, nominally on-policy ones among them (10b, 11). *Read:* text of the first part.
# - P. Qi et al. 2025, *Defeating the Training-Inference Mismatch via FP16*, https://arxiv.org/abs/2510.26788. *Here:*
#   rounding as the root of the mismatch (10b). *Read:* abstract. "24 times smaller" is not in it: second hand.
# - Ant Group's Ring team 2026, *KPop*, https://ringtech.notion.site/kpop. *Here:* IcePop in one sentence, and a mask
#   that catches less while the gap widens (10b, 12). *Read:* text of the first part.
# - Z. Guan et al. 2026, *Missing Old Logits in Asynchronous Agentic RL*, https://arxiv.org/abs/2605.12070. *Here:* one
#   ratio for two causes entangles their bounds (10b, 12). *Read:* abstract.
# - H. Zheng, J. Zhao and B. Chen 2025, *Prosperity before Collapse* (M2PO), https://arxiv.org/abs/2510.01161. *Here:*
#   256 updates stale and still learning (10, 11). *Read:* abstract: clipped tokens from 1.22 % to 0.06 %. The
#   authors' own page says 0.006 %; we follow the paper.
# - L. Huang et al. 2026, *Stable Asynchrony* (VCPO), https://arxiv.org/abs/2602.17616. *Here:* effective sample size
#   falls before a collapse (10, 11). *Read:* abstract and figure 1: 2.5 times faster; a later version says 1.96.
# - H. Xu et al. 2026, *GAC*, https://arxiv.org/abs/2603.01501. *Here:* stale gradients point the same way again and
#   again (11). *Read:* abstract.
# - *SAT*, a trust region that adapts to staleness, 2026, https://arxiv.org/abs/2607.18722. *Here:* named only (12).
#   *Read:* not re-read: not found again.
# - H. Lu et al. 2025, *ROLL Flash*, https://arxiv.org/abs/2510.11345. *Here:* what asynchrony buys: 2.24 and 2.72 times
#   (10). *Read:* abstract and introduction.
# - W. Gao et al. 2025, *RollPacker*, https://arxiv.org/abs/2509.21009. *Here:* synchronous and still 2.03 to 2.56 times
#   faster (10). *Read:* abstract. "About 70 % of a step is writing": second hand, twice.
# - R. Qin et al. 2025, *Seer*, https://arxiv.org/abs/2511.14617. *Here:* another synchronous cure (10). *Read:*
#   abstract: 74 to 97 % in the first version, up to 2.04 times in the third. 87 % and 50 %: second hand, not found.
# - G. Cui et al. 2025, *The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models*,
#   https://arxiv.org/abs/2505.22617. *Here:* reward against entropy, R = −a·exp(H) + b (11). *Read:* abstract. 73 % of
#   the entropy and 76 % of the gain within 200 steps: second hand.
# - Thaman 2026, *Reward Hacking Benchmark*, https://arxiv.org/abs/2605.02964. *Here:* exploit rates before and after
#   reinforcement learning (11). *Read:* abstract: 0.6 % against 13.9 %, and 87.7 % fewer after hardening.
# - *Steering RL Training* 2026, Alignment Forum,
#   https://alignmentforum.org/posts/R5MdWGKsuvdPwGFBG/steering-rl-training-benchmarking-interventions-against.
#   *Here:* a small model learns to overwrite its test (11). *Read:* text of the summary: 80 to 100 steps, 79 %.

# %% [markdown]
# ## DIS and the single rollout
#
# - Z. Hou, Y. Li, J. Tang and Y. Dong 2026, *Single-rollout Asynchronous Optimization*,
#   https://arxiv.org/abs/2607.07508. *Here:* DIS (12), skipping observations in GAE (04, 13), the critic's schedule
#   (13). *Read:* text, from a public transcription; not found again.
# - GLM-5 Team 2026, *GLM-5: from Vibe Coding to Agentic Engineering*, https://arxiv.org/abs/2602.15763. *Here:* DIS,
#   five months earlier (12), GRPO with IcePop (10b). *Read:* text of section 4.1; section 3 second hand, three
#   transcriptions that agree.
# - Human-Agent-Society 2026, *reef*, its recipe for SAO, https://github.com/Human-Agent-Society/reef. *Here:* an
#   independent run in which GRPO with DIS collapsed (12, 13). *Read:* text of the recipe's README.
# - Z. Xu and Z. Ding 2025, *Single-stream Policy Optimization*, https://arxiv.org/abs/2509.13232. *Here:* one answer a
#   prompt without a critic (13). *Read:* abstract: 3.4 points of maj@32.
# - Y. Wu et al. 2026, *Rethinking Groups in Critic-Free RLVR*, https://arxiv.org/abs/2606.17250. *Here:* another way
#   without a group (13). *Read:* abstract.

# %% [markdown]
# ## Libraries
#
# The course is tested against TRL 1.16.0 and TorchRL 0.14.1, and built with transformers 5.24.0. What it says of a
# library is true of that release; defaults change.
#
# - *TRL 1.16.0*, https://github.com/huggingface/trl. *Here:* ddof 1 and eps 1e-4 (05), every loss that we share with it
#   (03, 06, 07, 08). *Read:* source code; values and gradients agree in the parity tests.
# - *TorchRL 0.14.1*, https://github.com/pytorch/rl. *Here:* GAE (04). *Read:* source code; agrees in the parity tests.
# - *transformers 5.24.0*, https://github.com/huggingface/transformers. *Here:* the language models and their cache,
#   every chapter. *Read:* source code of the parts that we call.
# - *verl 0.9.1*, https://github.com/volcengine/verl. *Here:* DIS under another name, observations skipped in GAE (12,
#   13). *Read:* source code; checked once, not in a test.
# - *AReaL 1.0.4*, https://github.com/inclusionAI/AReaL. *Here:* the decoupled loss (10b, 12). *Read:* source code;
#   checked once, not in a test.
# - *OpenRLHF 0.11.2*, https://github.com/OpenRLHF/OpenRLHF. *Here:* the token mask (12). *Read:* source code; checked
#   once, not in a test.
# - *slime*, git 624b824, https://github.com/THUDM/slime. *Here:* what it has, and that DIS isn't in it (12). *Read:*
#   source code.

# %% tags=["setup"]
from pathlib import Path

import grpo_lab

# %% tags=["demo"]
pins = (Path(grpo_lab.__file__).parents[1] / "constraints.txt").read_text(encoding="utf-8")
for name in ("torch", "transformers", "trl", "torchrl"):
    print(next(line for line in pins.splitlines() if line.startswith(f"{name}==")))
