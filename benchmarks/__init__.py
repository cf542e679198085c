"""Measurements beside their peers: ``python -m benchmarks [name ...] [--quick]``.

A benchmark is a module of this package with ``main(quick: bool = False) -> list[dict]``: one dictionary
a row, with the peer's figure and the wanted one beside ours. :mod:`benchmarks.__main__` finds it by name.
"""
