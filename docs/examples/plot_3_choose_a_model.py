"""
3. Choose a model by accuracy and fairness
==========================================

A private scorer is one more entry of ``scoring=``. Test folds are disjoint, so each candidate costs every person one
answer.
"""

# %%
# Data and budget
# ---------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_fairleak import FairnessAuditor
from sklearn_fairleak.datasets import load_adult

adult = load_adult(subset="train")
X = adult.data.select_dtypes("number")
grid = {"logisticregression__C": [1e-4, 1e-3, 1e-2, 1.0]}

auditor = FairnessAuditor(adult.sensitive_features, epsilon=1.0)
scorer = auditor.scorer("statistical_parity", n_queries=4)

# %%
# What errors to expect, before anything is paid. The numbers are public.

print(scorer.plan(n_queries=4, n_samples=len(X) // 5)["expected_error"].round(4))

# %%
# The search
# ----------

search = GridSearchCV(
    make_pipeline(StandardScaler(), LogisticRegression()),
    grid,
    scoring={"accuracy": "accuracy", "parity": scorer},
    refit="accuracy",
    cv=5,
    error_score="raise",
).fit(X, adult.target)

results = search.cv_results_
for C, accuracy, parity in zip(
    grid["logisticregression__C"], results["mean_test_accuracy"], results["mean_test_parity"], strict=True
):
    print(f"C = {C:<6g} accuracy {accuracy:.3f}, gap about {-parity:.3f}")
print("remaining budget:", auditor.report()["remaining_"])

# %%
# Accuracy against fairness
# -------------------------
# The bars are the spread over folds: data and noise together.

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.errorbar(
    -results["mean_test_parity"],
    results["mean_test_accuracy"],
    xerr=results["std_test_parity"] / np.sqrt(5),
    fmt="o",
    color="#0072B2",
    capsize=3,
)
for C, x, y in zip(
    grid["logisticregression__C"], -results["mean_test_parity"], results["mean_test_accuracy"], strict=True
):
    axes.annotate(f"C = {C:g}", (x, y), xytext=(6, -10), textcoords="offset points")
_ = axes.set(xlabel="statistical parity gap (private)", ylabel="accuracy")
