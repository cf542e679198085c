"""Read a private release as an attacker would: gaps as sharp as it allows, and the law of what blurs them.

Answers of an auditor come in, with all that they publish; gaps and a noise law for the decoders go out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..answers import PrivateAnswers
from ..mechanisms.release import Release
from .noise_laws import NoiseLaw

__all__ = ["read_answers"]

FloatArray = npt.NDArray[np.float64]


def read_answers(
    answers: PrivateAnswers, sizes: tuple[int, int] | None = None
) -> tuple[FloatArray, NoiseLaw | None]:
    """Return the gaps that a release tells, and the law of their noise.

    Parameters
    ----------
    answers : PrivateAnswers
        Answers of one joint release.
    sizes : tuple of (n_disadvantaged, n_advantaged), default=None
        Group sizes. Where noisy sums are released, knowing them tells the noise of the counts,
        and with it what the sums' noise has in common with that.

    Returns
    -------
    gaps : ndarray of shape (n_models,)
    law : NoiseLaw or None
        None where answers are exact, or where nothing but a worst case of the scale is public.
    """
    release = answers.release
    signed = not answers.absolute and not answers.ratio and answers.rows.shape[1] == 1
    if release.law == "none" or not signed:
        return answers.values, None
    rows = answers.rows[:, 0]
    if release.keep is not None:
        return answers.values, NoiseLaw(
            "randomized_response", float(np.log(release.keep / (1.0 - release.keep)))
        )
    if release.gaps is None:
        return _from_sums(release, rows, answers, sizes)
    if answers.mechanism != "laplace" or release.scale is None:
        return answers.values, None
    return answers.values, NoiseLaw("laplace", float(np.median(release.scale[rows])) * answers.scale)


def _from_sums(
    release: Release, rows: npt.NDArray[np.int64], answers: PrivateAnswers, sizes: tuple[int, int] | None
) -> tuple[FloatArray, NoiseLaw | None]:
    """Rebuild gaps from noisy sums, less the noise that known sizes give away."""
    assert release.sums is not None
    assert release.counts is not None
    assert release.totals is not None
    assert release.weights is not None
    assert release.noise is not None
    if release.sums.shape[1] != 2 or np.isnan(release.totals).any():
        return answers.values, None
    a, scale = answers.advantaged, answers.scale
    sums, counts, noise = release.sums[rows, a], release.counts[rows, a], release.noise[rows]
    totals, weights = release.totals[rows], release.weights[rows]
    if sizes is not None and np.all(weights == sum(sizes)):
        n_disadvantaged, n_advantaged = sizes
        # Regress the sums' noise on the counts', which is what the counts show beyond the sizes.
        slope = (noise[:, 0] * noise[:, 1]).sum(axis=1) / np.square(noise[:, 1]).sum(axis=1)
        # The other group's sums and counts both err the other way, so the slope is the same.
        sums = sums - slope * (counts - n_advantaged)
        stretch = 1.0 / n_advantaged + 1.0 / n_disadvantaged
        gaps = sums * stretch - totals / n_disadvantaged
        enters = stretch * (noise[:, 0] - slope[:, None] * noise[:, 1])
    else:
        gaps = answers.values / scale
        means = release.means()[rows]
        size = np.clip(counts, 1.0, np.maximum(weights - 1.0, 1.0))
        rest = weights - size
        by_sum = 1.0 / size + 1.0 / rest
        by_count = -(means[:, a] / size + means[:, 1 - a] / rest)
        enters = by_sum[:, None] * noise[:, 0] + by_count[:, None] * noise[:, 1]
    # The source of each answer's own is the last of three, or the first; the others are drawn once a release.
    own = 2 if enters.shape[1] == 3 else 0
    each = float(np.median(np.abs(enters[:, own])))
    common = float(np.median(np.square(np.delete(enters, own, axis=1)).sum(axis=1))) ** 0.5
    if not each > 0.0:
        return gaps * scale, None
    width = 2.0**0.5 if release.law == "laplace" else 1.0
    return gaps * scale, NoiseLaw(release.law, each * scale, shared=common * width * scale)
