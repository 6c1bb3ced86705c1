"""The trials of ``cotenant.kernel.semantics``, replayed on the double by the code that replays them on real nodes."""

from cotenant.kernel.trials import Files, applicable, replay

__all__ = ["Files", "applicable", "replay"]
