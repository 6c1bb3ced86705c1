"""Overcommit: how much of each node batch and mid work may ask for, published as resources of the node."""
