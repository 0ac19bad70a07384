"""What an image costs in a diffusion pipeline, counted without weights; and live pipelines, watched."""
