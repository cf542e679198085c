"""
9. Two processes: attributes stay where they are
================================================

Objects of one Python process cannot hide anything from each other. Here the auditor lives in the compliance process,
and the developer's process holds a connection that can only ask.
"""

# %%
# The compliance process
# ----------------------
# It serves questions on a socket file that only this user can open, protected by a key.

import subprocess
import sys

from sklearn_fairleak import FairnessAuditor
from sklearn_fairleak.datasets import load_german_credit

credit = load_german_credit()
auditor = FairnessAuditor(credit.sensitive_features, epsilon=1.0)
server = auditor.serve()

# %%
# The developer's process
# -----------------------
# A program of its own. It knows where to ask and the key, loads features without the sensitive column, trains a model,
# and asks. Ids travel with the rows, so a shuffled test set is no problem.

PROGRAM = """
import sys
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn_fairleak import connect_auditor
from sklearn_fairleak.datasets import load_german_credit

X, y = load_german_credit(return_X_y=True)
X = X.select_dtypes("number")
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = LogisticRegression(max_iter=5000).fit(X_train, y_train)

auditor = connect_auditor(sys.argv[1], bytes.fromhex(sys.argv[2]))
scorer = auditor.scorer("equal_opportunity", epsilon=0.5)
print("score (minus the gap):", round(scorer(model, X_test, y_test), 3))
print("groups, by name only:", auditor.groups)
"""

developer = subprocess.run(
    [sys.executable, "-c", PROGRAM, str(server.address), server.authkey.hex()],
    capture_output=True,
    text=True,
    check=True,
)
print(developer.stdout)

# %%
# What the compliance team sees
# -----------------------------

print(auditor.report())
server.close()
