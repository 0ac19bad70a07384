"""Restoration networks that the training repositories name in their option files and no package carries."""
