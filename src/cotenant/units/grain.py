"""What binary arithmetic leaves of decimal figures: a value may be a hair beside the one that is meant."""

SECONDS = 1e-6
"""Differences of monotonic readings carry rounding noise; a second is a second."""
RATIO = 1e-12
"""A mean of 0.5 may be a hair less, and is at its bound all the same."""
HALF_UP = 0.5 + 1e-9
"""Added before ``floor``, rounds half up: 1 - 0.65 is a hair less than 0.35, and ten times as much is rounded to 4."""
