"""
8. The exact privacy loss of Cauchy noise
=========================================

For researchers: the largest log-ratio of two Cauchy densities is a hyperbolic distance. So the paper's Theorem 6 can be
checked, and sharpened, without any bound.
"""

# %%
# Two points in the half plane
# ----------------------------
# Answers :math:`f` with noise of scale :math:`s` are points :math:`f + \mathrm{i}s`. See :ref:`cauchy` for the proof.

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import cauchy

from sklearn_fairleak.mechanisms.attribute_conceal import cauchy_alpha
from sklearn_fairleak.sensitivity import global_sensitivity, smooth_sensitivity


def distance(f0, s0, f1, s1):
    return np.arccosh(1 + ((f0 - f1) ** 2 + (s0 - s1) ** 2) / (2 * s0 * s1))


x = np.linspace(-30, 30, 2001)
loss = cauchy.logpdf(x, 0.0, 1.0) - cauchy.logpdf(x, 0.8, 2.0)
limit = distance(0.0, 1.0, 0.8, 2.0)

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot(x, loss, color="#0072B2", label="log-ratio of densities")
for sign in (-1, 1):
    axes.axhline(sign * limit, color="#D55E00", ls="--", label="hyperbolic distance" if sign > 0 else None)
axes.set(xlabel="released value", ylabel="privacy loss")
_ = axes.legend()

# %%
# Theorem 6 as printed, at every group size
# -----------------------------------------
# The loss between neighbouring sizes, at the printed scale 6S/ε with ε = 1/2 and n = 100, and with the right smooth
# sensitivity. The printed bound jumps between groups of two and one, and its loss there exceeds ε (dotted).

EPSILON, n = 0.5, 100
sizes = np.arange(1, 51)
beta = EPSILON / 6
G = global_sensitivity(n)
printed = np.maximum(1 / sizes + 1 / (n - sizes + 1), np.exp(-beta * (sizes - 2)) * G)
right = smooth_sensitivity(sizes, n - sizes, beta)
corner_alpha, corner = (
    cauchy_alpha(EPSILON, np.log(2 * np.cosh(EPSILON) - 1)),
    np.log(2 * np.cosh(EPSILON) - 1),
)
tight = smooth_sensitivity(sizes, n - sizes, corner)
scales = {
    "printed": 6 * printed / EPSILON,
    "right S, ε/6": 6 * right / EPSILON,
    "right S, corner": tight / corner_alpha,
}

figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for (name, scale), colour in zip(scales.items(), ("#D55E00", "#E69F00", "#0072B2"), strict=True):
    # Neighbours differ by the local sensitivity of the larger group of the two sizes, at most.
    moves = (n + 1) / (sizes[1:] * (n - sizes[1:] + 1))
    axes[0].plot(sizes[:-1], distance(0, scale[:-1], moves, scale[1:]), ".-", color=colour, label=name)
    axes[1].semilogy(sizes, scale, color=colour, label=name)
axes[0].axhline(EPSILON, color="0.4", ls=":")
axes[0].set(xlabel="size of the smaller group", ylabel="loss to the next size", xlim=(0.5, 20))
axes[1].set(xlabel="size of the smaller group", ylabel="noise scale")
_ = axes[1].legend()

# %%
# With many answers the jump is paid once an answer: at m answers of ε/m each the printed loss between groups of two
# and one is about m times log 2, whatever ε.

for m in (1, 40, 300):
    per_answer = distance(0, printed[0], 0, G)
    print(f"m = {m}: claimed {EPSILON}, true loss at least {m * per_answer:.2f}")
