"""Networks (pure nn.Module code) and the registry that builds one, with example inputs, from a config."""

if __name__ == "models":  # found as a folder, at the top of a checkout
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
    from swinmr_profiling.short_names import stand_for

    stand_for(__name__)
