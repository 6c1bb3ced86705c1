"""Write the files that are generated from the code, or with ``--check`` say which are stale.

A generator is a function that returns the file's text; register it in ``FILES``.
"""

import argparse
import functools
import pathlib
import sys
from collections.abc import Callable

import chart_pages
import dashboards
import detection_pages
import kernel_pages
import policy_pages
import protobuf
from cotenant.api import crd
from cotenant.api.koordinator import kinds
from cotenant.manager.webhook import registration
from cotenant.scheduler import configuration

ROOT = pathlib.Path(__file__).resolve().parent.parent

FILES: dict[str, Callable[[], str]] = {
    f"charts/cotenant/definitions/{kind.plural}.yaml": functools.partial(crd.render, kind)
    for kind in crd.KINDS.values()
}
FILES |= {
    f"charts/cotenant/koordinator/{kind.plural}.yaml": functools.partial(crd.render, kind)
    for kind in kinds.KINDS.values()
}
FILES["charts/cotenant/files/webhooks.yaml"] = registration.template
FILES |= {
    f"charts/cotenant/files/scheduler/{name}.yaml": functools.partial(render, address)
    for name, render, address in (
        ("kube-scheduler", configuration.kube_scheduler_by_labels, "127.0.0.1:8088"),
        ("kube-scheduler-extender", configuration.kube_scheduler, "127.0.0.1:8088"),
        ("volcano-extender", configuration.volcano, "EXTENDER_SERVICE"),
    )
}
FILES["charts/cotenant/values.schema.json"] = chart_pages.schema
FILES["docs/helm.md"] = chart_pages.page
FILES["docs/signals.md"] = detection_pages.signals_page
FILES["docs/detections.md"] = detection_pages.detections_page
FILES["docs/rules.md"] = detection_pages.rules_page
FILES["docs/features.md"] = kernel_pages.features_page
FILES["docs/kernels.md"] = kernel_pages.kernels_page
FILES["docs/strategies.md"] = policy_pages.strategies_page
FILES["docs/nodeslo.md"] = policy_pages.nodeslo_page
FILES.update(protobuf.files())
FILES.update(dashboards.files())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    check = parser.parse_args().check
    stale = []
    for name, render in FILES.items():
        path = ROOT / name
        text = render()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for name in stale:
        print(f"{'stale: run `make generate`:' if check else 'written:'} {name}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
