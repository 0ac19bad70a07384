"""What test.py measures and writes."""
