"""Explorers for notebooks: controls, and the picture that follows them.

Each is a function that returns an ``Explorer``; ipywidgets loads when one is made. What they draw
are the pictures of ``plots``.
"""

from __future__ import annotations

from reshard_lab.widgets.panel import Explorer, View, explorer

__all__ = ["Explorer", "View", "explorer"]
