"""What to put into the schedulers' own configuration, so that they ask us."""

KUBE_TIMEOUT = "100ms"
KUBE_WEIGHT = 2
VOLCANO_TIMEOUT = "1s"


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
