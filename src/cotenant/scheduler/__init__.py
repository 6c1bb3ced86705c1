"""Extender, node verdicts, Kata readiness, explanations."""
