"""Networks (pure nn.Module code) and the registry that builds one, with example inputs, from a config."""
