"""Laws are tried on few examples, without deadlines: the machine may be busy."""

import gc

from hypothesis import HealthCheck, settings


settings.register_profile(
    "unit",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unit")


def pytest_collection_finish():
    """Blocks collect garbage before they begin; what is imported is none."""
    gc.freeze()
