"""The typed blocks of a profile."""
