"""What to put into the schedulers' own configuration, so that they follow our labels, or ask us."""

import textwrap

from cotenant.api.marks import AVOID_ONLINE_LABEL, INTERFERENCE_LABEL

KUBE_TIMEOUT = "100ms"
KUBE_WEIGHT = 2
VOLCANO_TIMEOUT = "1s"


def kube_scheduler_by_labels(address: str) -> str:
    """Return a KubeSchedulerConfiguration that prefers nodes by their labels; how to ask the extender is a comment."""
    extender = kube_scheduler(address).partition("extenders:\n")[2]
    return f"""\
# By our labels alone: kube-scheduler never waits for cotenant. This prefers other nodes and keeps nobody out; pods
# that must keep away say so by node affinity of their own.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:      # 0..100 points x 2 in all
        - weight: 60
          preference:
            matchExpressions: [{{key: {AVOID_ONLINE_LABEL}, operator: DoesNotExist}}]
        - weight: 30
          preference:
            matchExpressions: [{{key: {INTERFERENCE_LABEL}, operator: NotIn, values: [high, severe]}}]
        - weight: 10
          preference:
            matchExpressions: [{{key: {INTERFERENCE_LABEL}, operator: NotIn, values: [medium, high, severe]}}]
# To ask the extender instead of the profiles above (`cotenant scheduler config --extender`):
# extenders:
{textwrap.indent(extender, "# ")}"""


def kube_scheduler(address: str) -> str:
    """Return a KubeSchedulerConfiguration whose one extender is at this ``HOST:PORT``."""
    return f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: http://{address}/kube
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt        # else pods are evicted from nodes that the filter refuses afterwards
  weight: {KUBE_WEIGHT}                   # 0..10 points x 10 x weight, beside about 1200 of the default plugins
  nodeCacheCapable: true      # names only: 168 kB instead of 69 MB a request at 5,000 nodes
  ignorable: true             # without us, schedule as if we were not there
  httpTimeout: {KUBE_TIMEOUT}          # a hung server costs this for each call
"""


def volcano(address: str) -> str:
    """Return the part of Volcano's scheduler configuration that asks us, at this ``HOST:PORT``."""
    return f"""\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates          # first: the extender is then asked about survivors only
  - name: nodeorder
  - name: extender
    arguments:
      extender.urlPrefix: http://{address}/volcano
      extender.httpTimeout: {VOLCANO_TIMEOUT}
      extender.predicateVerb: predicate
      extender.prioritizeVerb: prioritize
      extender.ignorable: true
"""
