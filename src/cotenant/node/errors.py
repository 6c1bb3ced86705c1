"""What can go wrong for the node agent.

::

    NodeError
    ├── KubeletUnreachable   no answer, or one that is not a list of pods
    ├── RuntimeUnreachable   the container runtime stopped nothing
    └── BadSettings          the command line or a file it names cannot be used
"""

from cotenant.units import errors


class NodeError(errors.CotenantError):
    """The root of the node agent's errors."""


class KubeletUnreachable(NodeError):
    """The kubelet gave no list of pods."""


class RuntimeUnreachable(NodeError):
    """The container runtime stopped none of the containers asked for."""


class BadSettings(NodeError):
    """A setting cannot be used."""
