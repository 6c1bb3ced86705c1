"""Priority interfaces: what this kernel offers to hold offline work back, one file per kernel family.

Found by looking for files, never by the name of a distribution or a version, and never by writing: some levels stick.
"""

from cotenant.kernel.priority.probing import OverrideUnavailable, choose, probe

__all__ = ["OverrideUnavailable", "choose", "probe"]
