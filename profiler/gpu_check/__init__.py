"""One run on a machine with a GPU that holds every prediction against a measurement."""
