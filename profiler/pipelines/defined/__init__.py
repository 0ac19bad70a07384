"""Diffusion pipelines by their definition: components on meta tensors, calls per image, cost."""
