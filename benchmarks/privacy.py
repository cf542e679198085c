"""Lower bounds of epsilon of every sampled mechanism, from a million draws of each neighbour.

A pair of neighbours and an event are chosen once on other draws and kept, with the counts of every finished
chunk, in a cache folder: an interrupted run goes on where it stopped. ``FAIRLEAK_BENCHMARK_CACHE`` names the
folder; without it every run starts afresh in a temporary one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np

import sklearn_fairleak
from sklearn_fairleak.groups import Groups
from sklearn_fairleak.mechanisms import NoisySums, get_mechanism
from sklearn_fairleak.noise import Noise, SecureNoise
from sklearn_fairleak.privacy_audit import _choose_event, _outputs, _worst_pair, epsilon_lower_bound
from sklearn_fairleak.queries import make_queries

EPSILON, DELTA, CONFIDENCE = 1.0, 1e-3, 0.999
DRAWS, CHUNK, TRAINING = 10**6, 20_000, 20_000
QUICK_DRAWS, QUICK_TRAINING = 2_000, 1_000
#: Samples that are drawn from the system's entropy at a time.
AHEAD = 10_000

#: name, mechanism, delta of the claim, metric, models in one release
CLAIMS: list[tuple[str, Any, float, str, int]] = [
    ("laplace", "laplace", 0.0, "statistical_parity", 1),
    ("noisy_sums, pair", NoisySums(design="pair"), 0.0, "statistical_parity", 1),
    ("noisy_sums, sums, 2 models", NoisySums(design="sums"), 0.0, "statistical_parity", 2),
    ("noisy_sums, residuals, 2 models", NoisySums(design="residuals"), 0.0, "statistical_parity", 2),
    ("noisy_sums, equal opportunity", "noisy_sums", 0.0, "equal_opportunity", 1),
    ("noisy_sums, diagonal", NoisySums("gaussian", design="diagonal"), DELTA, "statistical_parity", 2),
    ("noisy_sums, ellipsoid", NoisySums("gaussian", design="ellipsoid"), DELTA, "statistical_parity", 2),
    ("randomized_response", "randomized_response", 0.0, "statistical_parity", 1),
    ("smooth_laplace", "smooth_laplace", DELTA, "statistical_parity", 1),
    ("attribute_conceal", "attribute_conceal", 0.0, "statistical_parity", 1),
]
#: Labels of the individuals, for metrics that need them: the last two do not count for equal opportunity.
LABELS = np.array([1, 1, 1, 1, 0, 0])


class NoiseAhead(Noise):
    """Independent samples of the system's noise, drawn many at a time because most of a draw is overhead."""

    def __init__(self) -> None:
        self._source = SecureNoise()
        self._drawn: dict[Any, Iterator[Any]] = {}

    def words(self, size: int) -> Any:
        return self._source.words(size)

    def discrete_laplace(self, scale: Fraction, size: int) -> Any:
        return self._next(("laplace", scale, size), lambda k: self._source.discrete_laplace(scale, k * size))

    def discrete_gaussian(self, sigma2: Fraction, size: int) -> Any:
        return self._next(
            ("gaussian", sigma2, size), lambda k: self._source.discrete_gaussian(sigma2, k * size)
        )

    def laplace(self, size: int) -> Any:
        return self._next(("continuous", size), lambda k: self._source.laplace(k * size))

    def cauchy(self, size: int) -> Any:
        return self._next(("cauchy", size), lambda k: self._source.cauchy(k * size))

    def randomized_response(self, values: Any, n_categories: int, epsilon: Fraction) -> Any:
        return self._next(
            ("response", values.tobytes(), n_categories, epsilon),
            lambda k: self._source.randomized_response(np.tile(values, k), n_categories, epsilon),
        )

    def _next(self, kind: Any, draw: Callable[[int], Any]) -> Any:
        """Hand out the next sample of a kind; each is used once."""
        sample = next(self._drawn.get(kind, iter(())), None)
        if sample is None:
            self._drawn[kind] = iter(draw(AHEAD).reshape(AHEAD, -1))
            sample = next(self._drawn[kind])
        return sample


def main(quick: bool = False) -> list[dict[str, Any]]:
    """Bound every claim from below."""
    rows = []
    with tempfile.TemporaryDirectory() as fresh:
        cache = Path(os.environ.get("FAIRLEAK_BENCHMARK_CACHE", fresh))
        for name, mechanism, delta, metric, n_models in CLAIMS:
            draws = QUICK_DRAWS if quick else DRAWS
            words = "".join(letter if letter.isalnum() else "-" for letter in name)
            place = cache / f"privacy-{sklearn_fairleak.__version__}-{draws}" / words
            place.mkdir(parents=True, exist_ok=True)
            hits, event = _count(place, mechanism, delta, metric, n_models, draws, quick)
            bound = epsilon_lower_bound(*hits, draws, delta=delta, confidence=CONFIDENCE)
            rows.append(
                {
                    "mechanism": name,
                    "claim": f"epsilon = {EPSILON:g}" + (f", delta = {delta:g}" if delta else ""),
                    "measured lower bound of epsilon": round(bound, 4),
                    "holds": bound <= EPSILON,
                    "event": event,
                    "hits": hits[0],
                    "hits of the neighbour": hits[1],
                    "draws of each": draws,
                    "confidence": CONFIDENCE,
                }
            )
    return rows


def _count(
    place: Path, mechanism: Any, delta: float, metric: str, n_models: int, draws: int, quick: bool
) -> tuple[tuple[int, int], str]:
    """Count an event under both neighbours, chunk by chunk."""
    y_true = LABELS if metric == "equal_opportunity" else None
    box = _box(mechanism, delta, metric, y_true)
    chosen = place / "event.joblib"
    if not chosen.exists():
        training = QUICK_TRAINING if quick else TRAINING
        rng = np.random.default_rng(0)
        pairs = list(_pairs(n_models, 4 if y_true is None else LABELS.size))
        pair = _worst_pair(box, pairs, delta, rng, climb=False)
        train = [_outputs(box, pair[0], data, training) for data in pair[1:]]
        # Thresholds only: an event of one output can be stored and read in words.
        joblib.dump((*pair, _choose_event(train[0], train[1], delta, rng, learned=False)), chosen)
    values, codes, neighbour, event = joblib.load(chosen)
    finished = place / "counts.jsonl"
    done = [json.loads(line) for line in finished.read_text().splitlines()] if finished.exists() else []
    size = min(CHUNK, draws)
    for _ in range(draws // size - len(done)):
        counts = [int(event.holds(_outputs(box, values, data, size)).sum()) for data in (codes, neighbour)]
        done.append(counts)
        with finished.open("a") as file:
            file.write(json.dumps(counts) + "\n")
    first, second = (sum(counts[k] for counts in done) for k in (0, 1))
    return ((second, first) if event.reversed else (first, second)), str(event.name)


def _pairs(n_models: int, n: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yield neighbours that differ in the first individual, where groups and predictions are extreme."""
    for n_zero, moved, zero, one in product((1, 2, n - 1), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0)):
        codes = (np.arange(n) >= n_zero).astype(np.int64)
        neighbour = np.append(1, codes[1:])
        row = np.where(codes == 0, zero, one)
        row[0] = moved
        yield np.tile(row, (n_models, 1)), codes, neighbour


def _box(mechanism: Any, delta: float, metric: str, y_true: Any) -> Callable[[Any, Any], Any]:
    """Return a function of values and codes that publishes all that depends on the secret."""
    chosen, noise = get_mechanism(mechanism), NoiseAhead()
    loss = chosen.privacy_loss(Fraction(EPSILON), Fraction(delta), 1)
    known: dict[bytes, Any] = {}

    def release(values: Any, codes: Any) -> Any:
        key = values.tobytes()
        if key not in known:
            batch = make_queries(metric, values, y_true)
            # What is calibrated on public values is calibrated once: the secret enters with the members.
            budget = loss.epsilon or loss.rho
            reader = chosen.reader(batch.queries[0], 2, budget) if isinstance(chosen, NoisySums) else None
            known[key] = batch, reader
        batch, reader = known[key]
        if reader is not None:
            return np.concatenate(reader(batch.queries[0].restrict(codes) == 1, noise))
        released = chosen.release(batch, Groups(codes, (0, 1)), loss, noise)
        shown = [released.gaps, released.sums, released.counts, released.scale]
        return np.concatenate([np.ravel(part) for part in shown if part is not None])

    return release
