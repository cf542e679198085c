"""
6. Red-team your own audit
==========================

Answers were given, exactly, for months. Who is exposed by them? And what would rounding have changed?
"""

# %%
# A log of answers
# ----------------
# Thirty people, and six questions that nobody meant as an attack: a model, the same model after small corrections by
# hand, and a model for one branch office.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_fairleak import AttributeRevealAttack
from sklearn_fairleak.attack import exposure
from sklearn_fairleak.datasets import make_audit

audit = make_audit(30, minority_share=0.3, random_state=1)
group = audit.sensitive_features.to_numpy()
base = audit.base.round(3)
queries = np.tile(base, (6, 1))
queries[1, 4] = 0.9  # one person's score was corrected
queries[2, [7, 8]] = 0.1, 0.6  # two people's
queries[3, [11, 12, 13]] = 0.5, 0.6, 0.8  # three people's
queries[4, 20:] = (base[20:] > 0.3).astype(float)  # hard decisions for a branch
queries[5] = (base > 0.3).astype(float)
answers = [h[group == 1].mean() - h[group == 0].mean() for h in queries]

# %%
# Who is exposed
# --------------
# An attacker who knows nothing but the log. The index is the person, ``determined_by`` the answer that settled it.

report = exposure(queries, answers)
print(report["status"].value_counts())
report[report["status"] == "determined"]

# %%
# Are they right? Only the compliance team can tell.

sure = (report["status"] == "determined").to_numpy()
print(
    "determined people that are right:",
    int((report["posterior"].to_numpy()[sure].round() == group[sure]).sum()),
)
print("of", int(sure.sum()))

# %%
# Rounding is no defence
# ----------------------
# An attack against answers with four decimals, on 300 people. One changed
# prediction a question: the digits that are left are enough.

audit = make_audit(300, minority_share=0.2, random_state=2)
group = audit.sensitive_features.to_numpy()


def rounded_gap(y_pred):
    return round(y_pred[group == 1].mean() - y_pred[group == 0].mean(), 4)


attack = AttributeRevealAttack("linear", signed=True).run(rounded_gap, audit.base)
print(f"{attack.n_queries_} answers of four decimals: {attack.leakage(group):.1%} of people right")

# %%
# How leakage grows with the number of answers
# --------------------------------------------
# Exact answers about randomly perturbed models, decoded from more and more of them.

rng = np.random.default_rng(3)
H = np.clip(audit.base + rng.uniform(-0.1, 0.1, (160, 300)), 0, 1)
exact = np.array([h[group == 1].mean() - h[group == 0].mean() for h in H])
numbers = [5, 20, 40, 60, 80, 100, 120, 160]
decoder = AttributeRevealAttack("compressed_sensing", decoder="box", group_sizes=(60, 240))
leakage = [decoder.fit(H[:m], exact[:m]).leakage(group) for m in numbers]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(numbers, leakage, "o-", color="#D55E00")
axes.axhline(0.5, color="0.5", lw=0.8)
_ = axes.set(xlabel="exact answers", ylabel="leakage (0.5 is guessing)", ylim=(0.45, 1.02))
