"""Settings of hypothesis for all tests: the same examples each time, without deadlines, because machines are shared."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "dressage", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("dressage")
