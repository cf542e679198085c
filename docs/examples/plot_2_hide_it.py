"""
2. Hide it: private answers
===========================

The same questions, answered with differential privacy. One honest question still gets a useful answer; the attack
gets noise.
"""

# %%
# An auditor holds the sensitive feature
# --------------------------------------
# ``epsilon`` is the budget of each person. Synthetic people here: 10.4 % are in the disadvantaged group.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_fairleak import AttributeRevealAttack, FairnessAuditor
from sklearn_fairleak.datasets import make_audit

audit = make_audit(1000, n_models=400, noise=0.1, random_state=0)
group = audit.sensitive_features.to_numpy()
auditor = FairnessAuditor(audit.sensitive_features, epsilon=2.0)

# %%
# One honest question
# -------------------

scorer = auditor.scorer("statistical_parity", epsilon=1.0, absolute=False)
answer = scorer.answer(audit.base)
low, high = answer.interval(0.95)
exact = audit.base[group == 1].mean() - audit.base[group == 0].mean()
print(f"answer {answer.value:.3f}, 95 % interval [{low:.3f}, {high:.3f}], exact {exact:.3f}")

# %%
# Four hundred questions
# ----------------------
# An attacker asks about 400 perturbed models, and shares one epsilon among them. Even together they say little
# about anyone.

attacker = auditor.scorer("statistical_parity", epsilon=1.0, absolute=False)
answers = attacker.answer_many(audit.predictions)
attack = AttributeRevealAttack("noisy", decoder="lmmse", group_sizes=(104, 896))
attack.fit(audit.predictions, answers.values)
print(f"mechanism chosen: {answers.mechanism}")
print(f"{attack.leakage(group):.1%} of people right, where 50 % is guessing")

# %%
# The attacker's scores of both groups overlap.

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
bins = np.linspace(attack.scores_.min(), attack.scores_.max(), 30)
for code, colour, name in ((1, "#0072B2", "advantaged"), (0, "#D55E00", "disadvantaged")):
    scores = attack.scores_[group == code]
    axes.hist(scores, bins, density=True, alpha=0.6, color=colour, label=name)
axes.set(xlabel="attacker's score of being advantaged", ylabel="density")
_ = axes.legend()

# %%
# What was spent
# --------------
# Both scorers charged the same people, so their budgets add up.

print(auditor.report())
