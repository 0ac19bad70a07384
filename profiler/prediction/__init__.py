"""Memory of training and inference, predicted for a GPU that is not here."""
