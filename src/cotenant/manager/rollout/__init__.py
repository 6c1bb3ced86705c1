"""Staged rollout: which node belongs to which stage, what gates say, the state machine, and the loop around it."""
