"""Attacks: what a model developer learns about people from the answers to fairness queries."""

from .reconstruction import Reconstruction

__all__ = ["Reconstruction"]
