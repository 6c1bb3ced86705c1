"""What Koordinator's objects are called by, as far as no module of ``cotenant.model`` reads it.

Labels and annotations that the node reads are in :mod:`cotenant.model.pod` and :mod:`cotenant.model.node`.
"""

MUTATING_UPDATE_LABEL = "pod.koordinator.sh/mutating-update"
"""On a pod: ``true`` lets profiles change its labels and annotations on updates, too."""
SKIP_VALIDATION_LABEL = "pod.koordinator.sh/skip-enhanced-validation"
"""On a pod: ``true`` passes it by the rules about classes, priorities and whole cores."""
SKIP_UPDATE_RESOURCES_ANNOTATION = "config.koordinator.sh/skip-update-resources"
"""On a profile: cpu and memory of its pods stay what they are."""
NORMALIZATION_LABEL = "node.koordinator.sh/cpu-normalization-enabled"
"""On a Node: ``true`` or ``false``, over what the strategy says."""
AMPLIFICATION_ANNOTATION = "node.koordinator.sh/resource-amplification-ratio"
"""On a Node: JSON, by how much each resource is shown as more than it is."""
AMPLIFIED_LABEL = "cotenant.io/amplified"
"""On a Node: ``true`` where it has that annotation, so that the webhook is asked about no other node's status."""
CPU_BASIC_INFO_ANNOTATION = "node.koordinator.sh/cpu-basic-info"
"""On a NodeResourceTopology: JSON, the model of the CPUs and what of them is switched on."""
