"""NodeSLO rendering, overcommit, profiles, rollout."""
