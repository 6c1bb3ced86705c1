"""``cotenant`` as it is typed, in this process: starting Python takes seconds in a guest."""

import contextlib
import io
import json
from typing import Any

from cotenant.cli import app


def run(*words: str) -> tuple[int, Any, str]:
    """Return exit status, the JSON that was printed, and what a person was told."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = app.run([*words, "--json"])
    return status, json.loads(out.getvalue()) if out.getvalue() else None, err.getvalue()


def restore() -> dict[str, Any]:
    """Run ``cotenant restore`` and return its status, what it put back, and what it left with the reason."""
    status, report, said = run("restore")
    left = [entry for kind in ("irreversible", "stale", "foreign", "failed") for entry in report[kind]]
    return {"status": status, "said": said, "paths": [entry["path"] for entry in report["restored"]], "left": left}
