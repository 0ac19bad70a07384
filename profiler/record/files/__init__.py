"""Profiles in files: written whole, read without trust, brought from earlier versions."""
