"""Attribute-Conceal: Cauchy noise by smooth sensitivity, Theorem 6 of the paper, corrected."""

from __future__ import annotations

import warnings
from fractions import Fraction
from math import atan, cosh, exp, expm1, log, pi, sinh, sqrt
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints

from ..accounting import PrivacyLoss
from ..exceptions import NotPrivateWarning
from ..groups import Groups
from ..noise import Noise
from ..queries import QueryBatch
from ..sensitivity import global_sensitivity, smooth_sensitivity
from .base import Mechanism, minority_size, range_limit
from .gaps import query_gaps, require_two_groups, snap, within_bounds
from .release import Release

__all__ = ["AttributeConceal", "cauchy_alpha", "paper_smooth_sensitivity"]


def cauchy_alpha(epsilon: float, beta: float) -> float:
    r"""Return the largest alpha for which noise S/alpha times Cauchy is epsilon-private.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one answer, in nats.
    beta : float
        S is a beta-smooth bound; beta < epsilon.

    Returns
    -------
    float
        0 where no alpha works.

    Notes
    -----
    The largest log-ratio of two Cauchy densities is the hyperbolic distance of their
    parameters in the upper half plane,
    :math:`\operatorname{arccosh}(1 + ((f_0-f_1)^2+(s_0-s_1)^2)/(2 s_0 s_1))`. With
    :math:`|f_0-f_1| \le \min(S_0, S_1)` and :math:`S_0/S_1 \le e^\beta` it stays below
    epsilon if alpha is at most :math:`2\sinh(\epsilon/2)` and
    :math:`\sqrt{4e^\beta\sinh^2(\epsilon/2)-(e^\beta-1)^2}`.

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms.attribute_conceal import cauchy_alpha
    >>> round(cauchy_alpha(1.0, 0.5), 6)
    1.042191
    """
    # Larger ones overflow, and what is private at 300 is at any larger epsilon.
    epsilon = min(epsilon, 300.0)
    if beta >= epsilon:
        return 0.0
    sliding = 4.0 * sinh(epsilon / 2) ** 2
    dilated = exp(beta) * sliding - expm1(beta) ** 2
    return sqrt(min(sliding, dilated)) if dilated > 0 else 0.0


def paper_smooth_sensitivity(
    n_disadvantaged: int, n_advantaged: int, n_queries: int, epsilon: float
) -> float:
    """Return the paper's smooth sensitivity to the letter (not a valid bound everywhere)."""
    n0, n1, m = max(n_disadvantaged, 1), n_advantaged, n_queries
    n = n0 + n1
    local = m / (n1 + 1) + m / n0
    return max(local, exp(-epsilon * (n0 - 2) / (6 * m)) * (m / (n - 1) + m / 2))


class AttributeConceal(Mechanism):
    r"""Add Cauchy noise scaled to a smooth bound of the local sensitivity.

    Parameters
    ----------
    calibration : {"tight", "paper"}, default="tight"
        ``"tight"`` uses the right smooth sensitivity and the exact privacy loss of Cauchy
        noise. ``"paper"`` follows the printed formulas to the letter, for research: it does
        not give the stated epsilon and warns.
    minority_share : float, default=0.1
        Public guess of the smaller group's share, used only to choose beta.
    bounds : {"clip", "none", "truncate"}, default="clip"
        Keep answers within [-1, 1]; ``"truncate"`` redraws within the range, which costs
        as much again, so the noise is calibrated to half of epsilon.

    Notes
    -----
    The scale depends on the secret group sizes, so intervals use the public worst case and
    are wide. Noise is made in floating point and rounded to a public grid: a reference
    mechanism, never a default.

    References
    ----------
    Theorem 6 and Algorithm 3 of Hamman, Chen & Dutta, FAccT 2023, arXiv 2211.02139.
    Nissim, Raskhodnikova & Smith, "Smooth Sensitivity and Sampling", STOC 2007.

    Examples
    --------
    >>> from sklearn_fairleak.mechanisms import AttributeConceal
    >>> AttributeConceal().error_scale(1000, 1, epsilon=1.0) < 0.05
    True
    """

    name: ClassVar[str] = "attribute_conceal"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "calibration": [StrOptions({"tight", "paper"})],
        "minority_share": [Interval(Real, 0, 0.5, closed="right")],
        "bounds": [StrOptions({"clip", "none", "truncate"})],
    }

    def __init__(
        self, *, calibration: str = "tight", minority_share: float = 0.1, bounds: str = "clip"
    ) -> None:
        self.calibration = calibration
        self.minority_share = minority_share
        self.bounds = bounds

    def privacy_loss(self, epsilon: Fraction, delta: Fraction, n_queries: int) -> PrivacyLoss:
        """Return the pure cost of one of ``n_queries`` answers."""
        validate_parameter_constraints(self._parameter_constraints, self.get_params(), type(self).__name__)
        return super().privacy_loss(epsilon, delta, n_queries)

    def release(
        self,
        batch: QueryBatch,
        groups: Groups,
        loss: PrivacyLoss,
        noise: Noise,
        *,
        advantaged: int = 1,
    ) -> Release:
        """Release noisy gaps; see :meth:`Mechanism.release`."""
        require_two_groups(self.name, batch, groups)
        if self.calibration == "paper":
            warnings.warn(
                "calibration='paper' follows printed formulas that do not give the stated epsilon "
                "(the smooth sensitivity jumps at a group of one). Use calibration='tight'.",
                NotPrivateWarning,
                stacklevel=2,
            )
        epsilon = float(loss.epsilon) / batch.multiplicity / (2.0 if self.bounds == "truncate" else 1.0)
        betas = [self._beta(query.n_subset, epsilon / query.values.shape[0]) for query in batch.queries]
        gaps, widest = [], []
        for beta, part in zip(betas, query_gaps(batch, groups, advantaged), strict=True):
            m = part.gaps.size
            scale = self._scale(part.n_disadvantaged, part.n_advantaged, m, epsilon, beta)
            # The public worst case: a group of one or two.
            worst = [self._scale(k, part.n_subset - k, m, epsilon, beta) for k in (1, 2)]
            widest.append(np.full(m, max(worst)))
            if self.bounds == "truncate":
                gaps.append(_truncated_cauchy(part.gaps, scale, noise))
            else:
                gaps.append(part.gaps + scale * noise.cauchy(m))
        return Release(
            law="cauchy",
            gaps=within_bounds(snap(np.concatenate(gaps)), self.bounds),
            scale=np.concatenate(widest),
            bounds=self.bounds,
        )

    def error_scale(
        self,
        n_samples: int,
        n_queries: int,
        epsilon: float,
        delta: float = 0.0,
        *,
        minority_share: float = 0.1,
        n_models: int = 1,
    ) -> float:
        """Return the expected absolute error of a clipped answer, at a guessed group size."""
        smaller = minority_size(n_samples, minority_share)
        m = n_queries * n_models
        beta = self._beta(n_samples, epsilon / m)
        scale = self._scale(smaller, n_samples - smaller, m, epsilon, beta)
        # The mean of min(|scale Z|, 1) for Cauchy Z.
        return range_limit((scale * log(1.0 + scale**-2) + 2.0 * atan(scale)) / pi)

    def _scale(self, n0: int, n1: int, n_models: int, epsilon: float, beta: float) -> float:
        """Return the noise scale of each of several gaps at given group sizes."""
        if self.calibration == "paper":
            return 6.0 * paper_smooth_sensitivity(n0, n1, n_models, epsilon) / epsilon
        return float(smooth_sensitivity(n0, n1, beta)) / cauchy_alpha(epsilon / n_models, beta)

    def _beta(self, n_subset: int, epsilon: float) -> float:
        """Choose beta for the guessed size of the smaller group: public, never the truth."""
        # The bound itself refuses subsets that are too small.
        global_sensitivity(n_subset)
        smaller = max(2, minority_size(n_subset, self.minority_share))
        larger = max(1, n_subset - smaller)
        # At the corner ln(2 cosh(epsilon) - 1) dilation costs nothing beyond sliding.
        corner = log(2.0 * cosh(min(epsilon, 700.0)) - 1.0)
        betas = np.append(np.geomspace(1e-3, 0.999, 60) * epsilon, min(corner, 0.999 * epsilon))
        alphas = np.array([cauchy_alpha(epsilon, beta) for beta in betas.tolist()])
        smooth = np.asarray(smooth_sensitivity(smaller, larger, betas))
        scales = np.where(alphas > 0, smooth / np.maximum(alphas, 1e-300), np.inf)
        return float(betas[int(np.argmin(scales))])


def _truncated_cauchy(gaps: Any, scale: float, noise: Noise) -> Any:
    """Draw from Cauchy laws restricted to [-1, 1] by inverting the distribution function."""
    low, high = np.arctan((-1.0 - gaps) / scale), np.arctan((1.0 - gaps) / scale)
    uniform = np.arctan(noise.cauchy(gaps.size)) / np.pi + 0.5
    return gaps + scale * np.tan(low + uniform * (high - low))
