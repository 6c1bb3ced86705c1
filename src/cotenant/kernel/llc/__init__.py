"""The last-level cache: monitoring by resctrl, performance events, and an optional probe where neither exists."""
