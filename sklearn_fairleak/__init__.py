"""Answer fairness queries with differential privacy, and measure what answers leak."""

__version__ = "0.1.0"
