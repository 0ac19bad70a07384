"""What others measured on GPUs, and what is predicted for it."""
