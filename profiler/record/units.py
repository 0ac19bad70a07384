"""Units that figures are shown in. Memory is MiB and GiB (2^20, 2^30 bytes), multiply-adds are giga (10^9)."""

MIB = 2**20
GIB = 2**30
GIGA = 1e9
