"""How programs log: lines for people, JSON lines for machines."""

import logging


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import msgspec

        line = {"time": self.formatTime(record), "level": record.levelname.lower(), "message": record.getMessage()}
        return msgspec.json.encode(line).decode()


def to_stderr(as_json: bool = False, level: int = logging.INFO) -> None:
    """Log to stderr from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # one line a request says nothing to an operator
