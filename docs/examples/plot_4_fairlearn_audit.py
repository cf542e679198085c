"""
4. Make a fairlearn audit private
=================================

An audit that uses fairlearn's ``MetricFrame`` becomes private by changing the class and giving a budget.
"""

# %%
# The audit as it is
# ------------------
# The model does not see the sensitive feature. The audit does, and prints exact values by group.

import matplotlib.pyplot as plt
from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_fairleak import PrivateMetricFrame
from sklearn_fairleak.datasets import load_adult
from sklearn_fairleak.displays import GroupMetricDisplay

train, test = load_adult(subset="train"), load_adult(subset="test")
columns = train.data.select_dtypes("number").columns
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train.data[columns], train.target)

audit = {
    "metrics": {"selected": selection_rate, "tpr": true_positive_rate, "fpr": false_positive_rate},
    "y_true": test.target,
    "y_pred": model.predict(test.data[columns]),
    "sensitive_features": test.sensitive_features,
}
exact = MetricFrame(**audit)
print(exact.by_group.round(4))

# %%
# The same audit, private
# -----------------------
# All metrics come from one release of noisy group sums, charged once to everyone. The list of groups is public, so
# it is given rather than read from the data.

groups = sorted(set(test.sensitive_features))
private = PrivateMetricFrame(**audit, epsilon=1.0, groups=groups)
print(private.by_group.round(4))

# %%
# Gaps and their limits
# ---------------------
# ``difference`` is corrected for the bias of noise. Limits cover the exact gap of these individuals.

low, high = private.interval(0.95, "difference")
there, here = exact.difference(), private.difference()
for name in audit["metrics"]:
    print(
        f"{name:9s} exact {there[name]:.3f}, private {here[name]:.3f}, in [{low[name]:.3f}, {high[name]:.3f}]"
    )

# %%
# By group, with intervals
# ------------------------
# Where a group is small, the interval is wide: this is what privacy costs, and it is said openly.

figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for name, ax in zip(audit["metrics"], axes, strict=True):
    GroupMetricDisplay.from_frame(private, name, ax=ax)
    ax.tick_params(axis="x", rotation=60)
