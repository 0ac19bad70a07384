"""What a reader sees of a profile, as data: no format yet."""
