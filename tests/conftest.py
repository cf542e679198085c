"""Profiles of Hypothesis, chosen with ``--hypothesis-profile``."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Mutants are many: fewer examples each, always the same, and slow ones are no failure.
settings.register_profile(
    "mutation", max_examples=30, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
