"""Which services are watched and where their latency is read: a file, or the short form of the command line."""

import pathlib
import re

import msgspec

from cotenant.api.exposition import BadSelector, Selector
from cotenant.latency import fetching, log
from cotenant.latency.errors import BadSource
from cotenant.units.malformed import BAD_VALUES, MALFORMED, yaml_problem

SERVICES_LIMIT = 16
"""On one host: each has a thread that reads it, so that a slow one delays no other."""
WINDOW_SECONDS = 60.0
_NAME = re.compile(r"[A-Za-z0-9._/:-]{1,253}")
_EXAMPLE = "services: [{name: shop, log: {path: /var/log/nginx/access.log, pattern: '{seconds}$'}}]"


class _Keys(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class Log(_Keys, frozen=True, kw_only=True):
    """An access log on this machine. ``pattern``: :meth:`cotenant.latency.log.Pattern.parse`."""

    path: str
    pattern: str


class Scrape(_Keys, frozen=True, kw_only=True):
    """A page of metrics, and the histogram in it: :meth:`cotenant.api.exposition.Selector.parse`."""

    url: str
    metric: str
    token_file: str = ""
    basic_auth_file: str = ""
    ca_file: str = ""


class Prometheus(_Keys, frozen=True, kw_only=True):
    """A server and what to ask it: ``query`` for buckets or native histograms, or numbers by ``p99`` and ``p999``."""

    url: str
    query: str = ""
    p99: str = ""
    p999: str = ""
    window_seconds: float = WINDOW_SECONDS
    """The range in the query (``[1m]``): how many requests a quantile rests on follows from it."""
    token_file: str = ""
    basic_auth_file: str = ""
    ca_file: str = ""


class Service(_Keys, frozen=True, kw_only=True):
    """One service; exactly one of the three sources. ``group`` is the path of its control group, where it has one."""

    name: str
    group: str = ""
    log: Log | None = None
    scrape: Scrape | None = None
    prometheus: Prometheus | None = None


class Configuration(_Keys, frozen=True, kw_only=True):
    """The file."""

    services: tuple[Service, ...]


def load(path: pathlib.Path) -> tuple[Service, ...]:
    """Return the services of a YAML or JSON file.

    :raises BadSource: if it cannot be read, or a service is not described as it must be.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise BadSource(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadSource(f"{path}: {error}") from None
    return parse(text, str(path))


def parse(text: str, place: str, limit: int = SERVICES_LIMIT) -> tuple[Service, ...]:
    """Return the services of a YAML or JSON text; ``place`` stands for it in errors.

    :raises BadSource: if it is neither, or a service is not described as it must be.
    """
    import yaml

    try:
        found = msgspec.convert(yaml.safe_load(text), Configuration, strict=False)
    except (yaml.YAMLError, *BAD_VALUES, *MALFORMED) as error:
        raise BadSource(f"{place}: {yaml_problem(error)}; write {_EXAMPLE}") from None
    try:
        return check(found.services, limit)
    except BadSource as error:
        raise BadSource(f"{place}: {error}") from None


def of_log(text: str) -> Service:
    """Return the service of ``NAME=PATH:PATTERN``.

    :raises BadSource: if it is not that.
    """
    name, equals, rest = text.partition("=")
    path, colon, pattern = rest.partition(":")
    if not (name and equals and path and colon and pattern):
        raise BadSource(f"{text[:200]!r}: write NAME=PATH:PATTERN, like shop=/var/log/nginx/access.log:{{seconds}}$")
    return check([Service(name=name, log=Log(path=path, pattern=pattern))])[0]


def check(services: "list[Service] | tuple[Service, ...]", limit: int = SERVICES_LIMIT) -> tuple[Service, ...]:
    """Return the services once they are seen to be well described.

    :raises BadSource: at the first that is not.
    """
    if len(services) > limit:
        raise BadSource(f"{len(services)} services; at most {limit}")
    names: set[str] = set()
    for service in services:
        if not _NAME.fullmatch(service.name):
            raise BadSource(f"service {service.name[:40]!r}: a name of 1 to 253 letters, digits and . _ - / :")
        if service.name in names:
            raise BadSource(f"service {service.name}: named twice")
        names.add(service.name)
        try:
            _check(service)
        except (BadSource, BadSelector) as error:
            raise BadSource(f"service {service.name}: {error}") from None
    return tuple(services)


def _check(service: Service) -> None:
    if sum(source is not None for source in (service.log, service.scrape, service.prometheus)) != 1:
        raise BadSource("give one of log, scrape, prometheus")
    if service.log is not None:
        log.Pattern.parse(service.log.pattern)
    asked_of = service.scrape or service.prometheus
    if asked_of is not None and asked_of.token_file and asked_of.basic_auth_file:
        raise BadSource("give tokenFile or basicAuthFile")
    if service.scrape is not None:
        fetching.check_url(service.scrape.url)
        Selector.parse(service.scrape.metric)
    if service.prometheus is not None:
        asked = service.prometheus
        fetching.check_url(asked.url)
        if bool(asked.query) == bool(asked.p99 or asked.p999):
            raise BadSource("give query, or p99 and p999")
        if not 1 <= asked.window_seconds <= 3600:
            raise BadSource("windowSeconds: 1 to 3600")


def trust_of(source: Scrape | Prometheus) -> fetching.Trust:
    """Return whom to believe when a source is asked."""
    names = (source.ca_file, source.token_file, source.basic_auth_file)
    return fetching.Trust(*(pathlib.Path(name) if name else None for name in names))
