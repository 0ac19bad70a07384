"""Colours of charts: fixed in files, chosen by the page's own style sheet (light, dark, print) inside a page."""

from __future__ import annotations

from dataclasses import dataclass

# Okabe and Ito 2008: told apart by the colour blind, and of middling lightness, so readable on white and on black.
SERIES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#8c8c2b", "#7a6fd0", "#a0522d")
NEUTRAL = ("#b4b4b4", "#909090", "#6c6c6c")


@dataclass(frozen=True)
class Palette:
    """ink: text and axes; muted: less of it; grid: lines behind; paper: the background; accent: what to look at."""

    ink: str
    muted: str
    grid: str
    paper: str
    accent: str


LIGHT = Palette(ink="#1b1b1b", muted="#5a5a5a", grid="#d9d9d9", paper="#ffffff", accent="#b3261e")
# Colours that no chart uses otherwise: each is replaced by a variable of the page.
MARKED = Palette(ink="#010203", muted="#010204", grid="#010205", paper="#010206", accent="#010207")
VARIABLES = {getattr(MARKED, name): f"var(--{name})" for name in ("ink", "muted", "grid", "paper", "accent")}
