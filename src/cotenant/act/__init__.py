"""Strategies: snapshot and policy in, plan out. Pure."""
