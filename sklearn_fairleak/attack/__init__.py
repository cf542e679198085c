"""Attacks: what a model developer learns about people from the answers to fairness queries."""

from .exposure import exposure
from .noise_laws import NoiseLaw
from .reconstruction import Reconstruction
from .reveal import AttributeRevealAttack

__all__ = ["AttributeRevealAttack", "NoiseLaw", "Reconstruction", "exposure"]
