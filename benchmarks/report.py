"""How the benchmarks print what must hold."""

from __future__ import annotations


def report(name: str, holds: bool, text: str) -> bool:
    """Print one mark; returns whether it holds."""
    print(f"  {'holds ' if holds else 'MISSED'} {name}: {text}")
    return holds
