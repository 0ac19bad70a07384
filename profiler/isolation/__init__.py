"""Running something in a process of its own, and noticing how it ends."""
