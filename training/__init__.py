"""k-space and masks, data, losses, metrics, and what trains a network with them."""

if __name__ == "training":  # found as a folder, at the top of a checkout
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
    from swinmr_profiling.short_names import stand_for

    stand_for(__name__)
