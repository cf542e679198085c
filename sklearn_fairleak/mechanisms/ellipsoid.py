"""Shape Gaussian noise to a public point set: the least-trace covering ellipsoid."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["optimal_ellipsoid"]

FloatArray = npt.NDArray[np.float64]


def optimal_ellipsoid(
    points: FloatArray, *, max_iter: int = 60, tol: float = 0.01
) -> tuple[FloatArray, FloatArray]:
    r"""Find the covariance of least trace whose ellipsoid covers all points.

    Minimise :math:`\operatorname{tr}\Sigma` subject to :math:`x_j^T\Sigma^{-1}x_j \le 1`.
    With weights p on the points and :math:`M = \sum_j p_j x_j x_j^T`, the choice
    :math:`\Sigma = M^{1/2}\max_j g_j`, :math:`g_j = x_j^T M^{-1/2} x_j`, is always
    feasible; the multiplicative update :math:`p_j \leftarrow p_j g_j / \sum_k p_k g_k`
    approaches the optimum, where :math:`(\operatorname{tr} M^{1/2})^2` bounds the trace
    from below.

    Parameters
    ----------
    points : ndarray of shape (n_features, n_points)
        Public columns.
    max_iter : int, default=60
        Largest number of updates.
    tol : float, default=0.01
        Stop when the trace is within this share of its lower bound.

    Returns
    -------
    axes : ndarray of shape (n_features, n_features)
        Orthonormal eigenvectors of the covariance, in columns.
    widths : ndarray of shape (n_features,)
        Square roots of its eigenvalues.

    References
    ----------
    Nikolov, "Private Query Release via the Johnson-Lindenstrauss Transform", SODA 2023
    (covering ellipsoids for Gaussian noise); the update is that of optimal design theory,
    Silvey, Titterington & Torsney, 1978.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_fairleak.mechanisms.ellipsoid import optimal_ellipsoid
    >>> axes, widths = optimal_ellipsoid(np.eye(2))
    >>> float((widths**2).sum().round(2))
    2.0
    """
    n_features, n_points = points.shape
    p = np.full(n_points, 1.0 / n_points)
    best, axes, widths = np.inf, np.eye(n_features), np.ones(n_features)
    for _ in range(max_iter):
        values, vectors = np.linalg.eigh((points * p) @ points.T)
        roots = np.sqrt(np.maximum(values, 1e-14 * values[-1]))
        g = (((vectors.T @ points) ** 2) / roots[:, None]).sum(axis=0)
        trace = float(roots.sum() * g.max())
        if trace < best:
            best, axes, widths = trace, vectors, np.sqrt(roots * g.max())
        if trace <= (1.0 + tol) * float(roots.sum()) ** 2:
            break
        p = p * g
        p /= p.sum()
    return axes, widths
