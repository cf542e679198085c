"""
5. Run a ledger
===============

Budgets hold only if somebody keeps count, across months and processes. A ledger file does.
"""

# %%
# A file with a budget
# --------------------

import tempfile
from pathlib import Path

from sklearn_fairleak import FairnessAuditor, PrivacyBudgetExceeded, PrivacyLedger
from sklearn_fairleak.datasets import load_german_credit

credit = load_german_credit()
path = Path(tempfile.mkdtemp()) / "credit.db"
auditor = FairnessAuditor(credit.sensitive_features, ledger=PrivacyLedger(path, epsilon=1.0))

# %%
# Three questions of 0.25 each: about everyone, about everyone again, and about the first half.

young = (credit.data["age"] < 30).astype(int)
cheap = (credit.data["credit_amount"] < 2000).astype(int)
scorer = auditor.scorer("statistical_parity", epsilon=0.75, n_queries=3)
for prediction in (credit.target, young, cheap.iloc[:500]):
    answer = scorer.answer(prediction)
    print(f"{answer.value:.3f} from {answer.n_samples} people")

# %%
# The first question once more is free: the recorded answer comes back.

again = scorer.answer(credit.target)
print("replayed:", again.replayed)

# %%
# What is left, and when it ends
# ------------------------------
# Budgets are per person. Those of the second half were in two answers only.

print(auditor.report())
greedy = auditor.scorer("statistical_parity", epsilon=0.5)
try:
    greedy.answer(cheap)
except PrivacyBudgetExceeded as error:
    print(error)

# %%
# The history holds no attribute, no group size and no exact answer.

auditor.ledger.history()
