"""The cluster's detector."""
