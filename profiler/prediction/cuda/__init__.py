"""What CUDA's operators do otherwise than those of tensors without data."""
