"""Data sets shipped with the package, and synthetic audits."""

from ._adult import load_adult
from ._german_credit import load_german_credit
from ._synthetic import make_audit

__all__ = ["load_adult", "load_german_credit", "make_audit"]
