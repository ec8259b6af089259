"""How properties are tried, everywhere: the same examples each time, and nothing said of a busy machine's speed."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "dressage", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("dressage")
