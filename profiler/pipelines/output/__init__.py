"""What is written and printed of a pipeline."""
