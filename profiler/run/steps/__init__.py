"""The steps of the main job, each saved as soon as it is known."""
