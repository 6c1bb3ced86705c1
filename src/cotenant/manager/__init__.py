"""The cluster's manager: policy, overcommit and profiles, from what operators write to what nodes get."""
