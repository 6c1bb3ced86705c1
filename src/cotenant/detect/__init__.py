"""Rules, detectors, the interference index and attribution. Pure."""
