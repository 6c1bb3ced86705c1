"""Which API server to speak with, and as whom."""

import pathlib

import msgspec
import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core import exceptions as lightkube_exceptions

from cotenant.kube import errors

_BAD_CONFIGURATION = (
    lightkube_exceptions.ConfigError, OSError, yaml.YAMLError, msgspec.MsgspecError,
    KeyError, ValueError, TypeError, AttributeError, RecursionError,
)  # fmt: skip
"""What reading a kubeconfig raises: lightkube checks little of its shape."""


def load_configuration(kubeconfig: pathlib.Path | None = None) -> SingleConfig:
    """Return the connection settings of a kubeconfig; without one, of the pod we run in, KUBECONFIG or ~/.kube/config.

    :raises BadConfiguration: if there is none, or it cannot be used.
    """
    try:
        found = KubeConfig.from_file(str(kubeconfig)) if kubeconfig else KubeConfig.from_env()
        config = found.get()
    except _BAD_CONFIGURATION as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise errors.BadConfiguration(f"kubeconfig {kubeconfig or 'by default'}: {what}; give --kubeconfig") from None
    if config is None:
        where = f"kubeconfig {kubeconfig} has no current context" if kubeconfig else "not in a pod, and no kubeconfig"
        raise errors.BadConfiguration(f"no cluster: {where}; give --kubeconfig FILE")
    return config if config.user is not None else config._replace(user=User())
