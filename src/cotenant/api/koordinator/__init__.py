"""Koordinator's kinds as structs, one module a kind: the protocol that both halves of that system speak."""
