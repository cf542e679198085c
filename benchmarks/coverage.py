"""Measured coverage of noise intervals beside nominal, over sizes, shares and mechanisms."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn_fairleak.groups import Groups
from sklearn_fairleak.intervals import corrected_gaps, gap_intervals, limits_hold
from sklearn_fairleak.mechanisms import Mechanism, NoisySums, get_mechanism
from sklearn_fairleak.mechanisms.release import Release
from sklearn_fairleak.metrics import combine_rows, group_means
from sklearn_fairleak.noise import SeededNoise
from sklearn_fairleak.queries import canonical_metric, make_queries

SIZES = (200, 1000, 10_000, 100_000)
SHARES = (0.0, 0.01, 0.05, 0.3)
LEVELS = (0.90, 0.95, 0.99)
DELTA = 1e-6
TRIALS = 200
MECHANISMS: dict[str, tuple[str | Mechanism, float]] = {
    "laplace": ("laplace", 0.0),
    "attribute_conceal": ("attribute_conceal", 0.0),
    "smooth_laplace": ("smooth_laplace", DELTA),
    "noisy_sums": ("noisy_sums", 0.0),
    "noisy_sums, gaussian": (NoisySums("gaussian"), DELTA),
    "randomized_response": ("randomized_response", 0.0),
}
QUESTIONS = (
    ("statistical_parity", 2),
    ("statistical_parity", 4),
    ("equalized_odds", 2),
    ("statistical_parity_ratio", 2),
)


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Measure, in percent, how often intervals cover the exact answer, and the bias of estimates."""
    sizes = SIZES[:1] if quick else SIZES
    shares = (0.05, 0.5) if quick else SHARES
    rows = []
    for name, (mechanism, delta) in MECHANISMS.items():
        for metric, n_groups in QUESTIONS:
            if not get_mechanism(mechanism).releases_groups and (metric, n_groups) != QUESTIONS[0]:
                continue
            for n in sizes:
                for share in shares:
                    found = Trials(
                        mechanism,
                        metric,
                        n_groups,
                        n,
                        share,
                        trials=20 if quick else TRIALS,
                        delta=delta,
                        seed=len(rows),
                    )
                    row: dict[str, Any] = {"mechanism": name, "metric": metric, "groups": n_groups}
                    row |= {"n": n, "minority": round(share * n)}
                    for level in LEVELS:
                        row[f"{level:.0%}"] = round(100 * found.coverage(level), 1)
                    rows.append(row)
    return rows


class Trials:
    """Releases with fresh noise of one question about fixed data, and the exact answer.

    Parameters
    ----------
    mechanism : str or Mechanism
        How to release.
    metric : str
        What is asked.
    n_groups, n : int
        Number of groups and of individuals.
    share : float
        Share of the second group; the others are of about equal size.
    trials : int
        Number of releases.
    epsilon, delta : float
        Privacy of each.
    gap : float, default=0.15
        By how much less often the second group is selected; 0 alternates within each group, so
        that rates are equal.
    seed : int, default=0
        Of the data and of the noise.
    """

    def __init__(
        self,
        mechanism: str | Mechanism,
        metric: str,
        n_groups: int,
        n: int,
        share: float,
        *,
        trials: int,
        epsilon: float = 1.0,
        delta: float = 0.0,
        gap: float = 0.15,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        codes = np.zeros(n, dtype=np.int64)
        minority = round(share * n)
        codes[:minority] = 1
        if n_groups > 2:
            codes[minority:] = rng.choice([0, *range(2, n_groups)], n - minority)
        y_true = rng.random(n) < 0.5
        y_pred = (rng.random(n) < np.where(codes == 1, 0.5 - gap, 0.5)).astype(float)
        if gap == 0.0:
            y_pred[np.argsort(codes, kind="stable")] = np.arange(n) % 2
        _, self.ratio = canonical_metric(metric)
        batch = make_queries(metric, y_pred, y_true)
        groups = Groups(codes, tuple(range(n_groups)))
        means = group_means(batch, codes, n_groups)
        means = np.where(np.isnan(means), 0.5, means)
        self.truth = float(combine_rows(means, batch.rows, ratio=self.ratio, advantaged=1)[0])
        chosen = get_mechanism(mechanism)
        loss = chosen.privacy_loss(Fraction(epsilon), Fraction(delta), 1)
        releases = [
            chosen.release(batch, groups, loss, SeededNoise(seed, trial.to_bytes(4, "big")))
            for trial in range(trials)
        ]
        self.release, self.rows = _joined(releases, batch.rows)

    def coverage(self, level: float) -> float:
        """Return how often limits hold the exact answer."""
        truth = np.full(self.rows.shape[0], self.truth)
        return float(limits_hold(self.release, self.rows, level, truth, ratio=self.ratio).mean())

    def limits(self, level: float, *, absolute: bool = True) -> npt.NDArray[np.float64]:
        """Return limits of every release."""
        return gap_intervals(
            self.release, self.rows, level, ratio=self.ratio, absolute=absolute, advantaged=1
        )

    def biases(self) -> tuple[float, float]:
        """Return the mean errors of plain and of corrected answers."""
        means = self.release.means()
        plain = combine_rows(means, self.rows, ratio=self.ratio, advantaged=1)
        corrected = corrected_gaps(self.release, self.rows, ratio=self.ratio)
        return float(plain.mean() - self.truth), float(corrected.mean() - self.truth)


def _joined(releases: list[Release], rows: npt.NDArray[np.int64]) -> tuple[Release, npt.NDArray[np.int64]]:
    """Make releases of the same question one release about several models."""
    first = releases[0]
    arrays = {
        name: np.concatenate([getattr(release, name) for release in releases])
        for name in ("sums", "counts", "totals", "weights", "noise", "gaps", "scale")
        if getattr(first, name) is not None
    }
    n_rows = next(iter(arrays.values())).shape[0] // len(releases)
    return replace(first, **arrays), np.concatenate([rows + n_rows * k for k in range(len(releases))])


if __name__ == "__main__":
    for row in main(quick=True):
        print(row)
