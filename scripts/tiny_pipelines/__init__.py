"""Any diffusers pipeline class with tiny networks and random weights."""
