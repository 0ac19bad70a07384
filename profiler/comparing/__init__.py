"""Several profiles side by side: what may be compared, by how much they differ, and whether that is noise."""
