"""
7. Which noise for how many models
==================================

Near-identical models share noise. This example measures what each mechanism does to a gap, for one model and for many,
at the same privacy.
"""

# %%
# Measured errors
# ---------------
# Medians over the models of a batch and a few releases, 1000 people of whom 104 are in the smaller group.

import matplotlib.pyplot as plt
import numpy as np

from sklearn_fairleak import FairnessAuditor
from sklearn_fairleak.datasets import make_audit

EPSILON, n = 1.0, 1000
names = ["laplace", "noisy_sums", "randomized_response"]
numbers = [1, 3, 10, 30, 100]


def median_error(name, m, releases=8):
    audit = make_audit(n, minority_share=0.104, n_models=m, noise=0.1, random_state=m)
    group = audit.sensitive_features.to_numpy()
    exact = audit.predictions[:, group == 1].mean(axis=1) - audit.predictions[:, group == 0].mean(axis=1)
    errors = []
    for _ in range(releases):
        auditor = FairnessAuditor(audit.sensitive_features, epsilon=EPSILON)
        answers = auditor.scorer(mechanism=name, absolute=False).answer_many(audit.predictions)
        errors.append(np.abs(answers.values - exact))
    return np.median(errors)


measured = {name: [median_error(name, m) for m in numbers] for name in names}

# %%
# Noise on the gap (``laplace``) grows with the number of models until it covers the whole range. Noise on sums
# (``noisy_sums``) starts far lower. One private copy of the attributes (``randomized_response``) does not depend on
# the number at all.

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, colour in zip(names, ("#D55E00", "#0072B2", "#009E73"), strict=True):
    axes.loglog(numbers, measured[name], "o-", color=colour, label=name)
axes.set(xlabel="models in one release", ylabel="median |error| of a gap")
_ = axes.legend()
