"""
1. What exact answers give away
===============================

A model developer may not see race. A compliance team does, and tells the developer the statistical parity gap of
any model, exactly. How many answers does it take to know everybody's race?
"""

# %%
# A model without race
# --------------------
# UCI Adult, White and Black people. The model never sees race. The developer submits predictions about 1000 people
# of the test set.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_fairleak import AttributeRevealAttack
from sklearn_fairleak.datasets import load_adult

train, test = load_adult(subset="train"), load_adult(subset="test")
numbers = train.data.select_dtypes("number").columns
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train.data[numbers], train.target)
people = test.data.sample(1000, random_state=0).index
base = model.predict_proba(test.data.loc[people, numbers])[:, 1]

# %%
# The compliance team's side: one number an answer.

race = (test.sensitive_features[people] == "White").to_numpy().astype(int)


def exact_gap(y_pred):
    return y_pred[race == 1].mean() - y_pred[race == 0].mean()


print(f"gap of the honest model: {exact_gap(base):.4f}")

# %%
# Two attacks
# -----------
# Random perturbations and sparse recovery (the paper's Algorithm 2), and people read as binary digits.

sparse = AttributeRevealAttack("compressed_sensing", n_queries=400, random_state=0).run(exact_gap, base)
digits = AttributeRevealAttack("positional").run(exact_gap, base)
for name, attack in {"compressed sensing": sparse, "positional": digits}.items():
    print(f"{name}: {attack.n_queries_} answers, {attack.leakage(race):.1%} of people right")

# %%
# The submitted models look honest
# --------------------------------
# Every prediction stays close to the real model's. Nothing about one submitted model looks strange.

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
order = np.argsort(base)
submitted = AttributeRevealAttack("compressed_sensing", n_queries=400, random_state=0).design(base)[200]
axes.plot(submitted[order], ".", ms=3, color="#E69F00", label="one submitted model")
axes.plot(base[order], color="#0072B2", label="honest model")
axes.set(xlabel="person, by score", ylabel="predicted probability")
_ = axes.legend()
