"""Results people look at: one view of a profile, one file per writer."""
