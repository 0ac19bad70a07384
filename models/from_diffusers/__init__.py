"""Networks of the diffusers package: made by class and config, and what a call of them takes."""
