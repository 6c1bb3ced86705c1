"""Strategies of nodes: Koordinator's ConfigMap followed, and what each node gets of it written."""
