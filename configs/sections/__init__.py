"""The sections of a config, as pydantic models: one field a key, with its range and what it says in the guide."""
