"""Diffusion pipelines as objects: what a call really ran."""
