"""Measured coverage of noise intervals beside nominal, over sizes, shares and mechanisms."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from sklearn_fairleak.groups import Groups
from sklearn_fairleak.intervals import gap_intervals
from sklearn_fairleak.mechanisms import Mechanism, NoisySums, get_mechanism
from sklearn_fairleak.metrics import combine_rows, group_means
from sklearn_fairleak.noise import SeededNoise
from sklearn_fairleak.queries import canonical_metric, make_queries

SIZES = (200, 1000, 10_000, 100_000)
SHARES = (0.0, 0.01, 0.05, 0.1, 0.3, 0.5)
LEVELS = (0.90, 0.95, 0.99)
DELTA = 1e-6
MECHANISMS: dict[str, tuple[str | Mechanism, float]] = {
    "laplace": ("laplace", 0.0),
    "attribute_conceal": ("attribute_conceal", 0.0),
    "smooth_laplace": ("smooth_laplace", DELTA),
    "noisy_sums": ("noisy_sums", 0.0),
    "noisy_sums, gaussian": (NoisySums("gaussian"), DELTA),
    "randomized_response": ("randomized_response", 0.0),
}


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Measure, in percent, how often intervals cover the exact answer."""
    sizes = SIZES[:1] if quick else SIZES
    shares = (0.05, 0.5) if quick else SHARES
    trials = 40 if quick else 1000
    rows = []
    for name, (mechanism, delta) in MECHANISMS.items():
        for metric, n_groups in (
            ("statistical_parity", 2),
            ("statistical_parity", 4),
            ("equalized_odds", 2),
            ("statistical_parity_ratio", 2),
        ):
            if not get_mechanism(mechanism).releases_groups and (n_groups > 2 or "ratio" in metric):
                continue
            for n in sizes:
                for share in shares:
                    covered = measure(mechanism, metric, n_groups, n, share, trials=trials, delta=delta)
                    row: dict[str, Any] = {"mechanism": name, "metric": metric, "groups": n_groups}
                    row |= {"n": n, "minority": round(share * n)}
                    row |= {
                        f"{level:.0%}": round(100 * c, 1) for level, c in zip(LEVELS, covered, strict=True)
                    }
                    rows.append(row)
    return rows


def measure(
    mechanism: str | Mechanism,
    metric: str,
    n_groups: int,
    n: int,
    share: float,
    *,
    trials: int,
    epsilon: float = 1.0,
    delta: float = 0.0,
    absolute: bool = True,
    seed: int = 0,
) -> list[float]:
    """Return the coverage at each of :data:`LEVELS`, over fresh noise on fixed data."""
    rng = np.random.default_rng(seed)
    codes = np.zeros(n, dtype=np.int64)
    minority = round(share * n)
    codes[:minority] = 1
    if n_groups > 2:
        codes[minority:] = rng.choice([0, *range(2, n_groups)], n - minority)
    y_true = rng.random(n) < 0.5
    y_pred = (rng.random(n) < np.where(codes == 1, 0.35, 0.5)).astype(float)
    _, ratio = canonical_metric(metric)
    batch = make_queries(metric, y_pred, y_true)
    groups = Groups(codes, tuple(range(n_groups)))
    means = group_means(batch, codes, n_groups)
    truth = combine_rows(
        np.where(np.isnan(means), 0.5, means), batch.rows, ratio=ratio, absolute=absolute, advantaged=1
    )
    chosen = get_mechanism(mechanism)
    loss = chosen.privacy_loss(Fraction(epsilon), Fraction(delta), 1)
    covered = np.zeros(len(LEVELS))
    for trial in range(trials):
        release = chosen.release(batch, groups, loss, SeededNoise(seed, trial.to_bytes(4, "big")))
        for k, level in enumerate(LEVELS):
            low, high = gap_intervals(
                release, batch.rows, level, ratio=ratio, absolute=absolute, advantaged=1
            )[0]
            covered[k] += low - 1e-9 <= truth[0] <= high + 1e-9
    return [float(c) for c in covered / trials]


if __name__ == "__main__":
    for row in main(quick=True):
        print(row)
