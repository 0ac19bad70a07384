"""Training and sampling of diffusion denoisers."""
