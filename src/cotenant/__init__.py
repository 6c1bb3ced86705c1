"""cotenant: latency-sensitive and best-effort work on the same machines."""

__version__ = "0.1.0"
