"""How many examples: a few hundred in the quick tests, 20,000 a reader with HYPOTHESIS_PROFILE=campaign."""

import os
from datetime import timedelta

import pytest

hypothesis = pytest.importorskip("hypothesis")

SHARED = {
    "suppress_health_check": list(hypothesis.HealthCheck),
    "database": None,
    "print_blob": True,
}
hypothesis.settings.register_profile("quick", max_examples=200, deadline=None, derandomize=True, **SHARED)
# A reader that takes longer than this for a small file hangs.
hypothesis.settings.register_profile(
    "campaign",
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "20000")),
    deadline=timedelta(seconds=5),
    **SHARED,
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
