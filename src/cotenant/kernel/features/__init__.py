"""What this kernel offers beyond the priority interface, each with what is lost without it and how to get it."""

from cotenant.kernel.features import controllers, files, observing, scheduling, vendor
from cotenant.kernel.features.registry import FEATURES, Feature, Finding, probe_all

__all__ = ["FEATURES", "Feature", "Finding", "controllers", "files", "observing", "probe_all", "scheduling", "vendor"]
