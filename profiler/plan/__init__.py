"""Making a training step fit: what to recompute, micro-batch, precision; plans as files, applied."""
