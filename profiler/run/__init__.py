"""The main job: options, steps, resume, interruption."""
