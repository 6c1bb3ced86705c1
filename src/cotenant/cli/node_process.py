"""The process in which ``cotenant node`` goes on (:mod:`cotenant.cli.handing_over`)."""

import asyncio
import sys

from cotenant.cli import failures, handing_over, logs
from cotenant.node import program


def main() -> None:
    """Run the agent until told to end."""
    given = handing_over.received(program.Settings, "cotenant node")
    logs.to_stderr(given.as_json)
    try:
        asyncio.run(program.run(given.settings, _say))
    except KeyboardInterrupt:
        sys.exit(130)
    except failures.FAILURES as error:
        sys.exit(failures.tell(error))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
