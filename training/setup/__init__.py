"""What validate_setup.py checks."""
