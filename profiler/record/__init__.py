"""The profile: its typed blocks, its file, what identifies it, what went wrong and what must be known."""
