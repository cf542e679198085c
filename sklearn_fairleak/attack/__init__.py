"""Attacks: what a model developer learns about people from the answers to fairness queries."""

from .exposure import exposure
from .many_groups import MultiGroupReconstruction
from .metric_oracles import reveal_through_metric
from .noise_laws import NoiseLaw
from .reconstruction import Reconstruction
from .reveal import AttributeRevealAttack

__all__ = [
    "AttributeRevealAttack",
    "MultiGroupReconstruction",
    "NoiseLaw",
    "Reconstruction",
    "exposure",
    "reveal_through_metric",
]
