"""Diffusion denoisers, and what they take."""
