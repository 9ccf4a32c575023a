"""Property tests here may take as long as the machine needs."""

from hypothesis import HealthCheck, settings

# Both the deadline of an example and the health check measure wall-clock time of a shared machine.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
