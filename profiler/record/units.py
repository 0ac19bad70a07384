"""Units that figures are shown in. Memory is MiB and GiB (2^20, 2^30 bytes), multiply-adds are giga (10^9)."""

MIB = 2**20
GIB = 2**30
GIGA = 1e9


def gib(number: int) -> str:
    """ "23.50 GiB"."""
    return f"{number / GIB:,.2f} GiB"


def figure(value: float) -> str:
    """A figure for people: two decimals, and below one three significant digits ("1,234.50", "0.00471")."""
    return f"{value:,.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"
