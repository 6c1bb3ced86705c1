"""The OpenAPI description of the JSON paths, generated from the very structs that the answers are encoded from."""

from typing import Any

import msgspec

import cotenant
from cotenant.model.enforcement import EnforcementState
from cotenant.model.incident import Incident
from cotenant.model.latency import ServiceLatency
from cotenant.model.ledger import Ledger
from cotenant.model.sample import Cgroup, Sample
from cotenant.web.feed import Report, Restored, RulesState, Series


class CgroupList(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of the newest sample."""

    time: str
    cgroups: list[Cgroup]


class IncidentList(msgspec.Struct, frozen=True, kw_only=True):
    """Incidents, newest first."""

    incidents: list[Incident]


class Enforcement(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop that acts found and did in its newest round; null where nothing is enforced."""

    enforcement: EnforcementState | None


class LatencyList(msgspec.Struct, frozen=True, kw_only=True):
    """Online services and their latency; empty where none is watched."""

    services: list[ServiceLatency]


class Rollback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which revision to go back to; without a number, the one before."""

    revision: int | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the answer is not what was asked for."""

    error: str


READ_PATHS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "/api/v1/sample": (Sample, "The newest sample; absent or null is unknown, and `missing` says why."),
    "/api/v1/report": (Report, "Who is hurt now, by what; the rules, the history and the cost."),
    "/api/v1/cgroups": (CgroupList, "The groups of the newest sample."),
    "/api/v1/incidents": (IncidentList, "Incidents, newest first."),
    "/api/v1/enforcement": (Enforcement, "Targets beside what is there, who was held back, and what that cost whom."),
    "/api/v1/ledger": (
        Ledger,
        "What offline groups asked for, got and lost; empty where nothing is enforced.",
    ),
    "/api/v1/latency": (LatencyList, "Latency of the online services that are watched; null is unknown."),
    "/api/v1/history": (
        Series,
        "The last seconds of every number: 1 s steps up to an hour, 10 s up to six, else 1 min.",
    ),
}

PARAMETERS: dict[str, tuple[str, int, int, int]] = {
    "/api/v1/incidents": ("limit", 1, 500, 50),
    "/api/v1/history": ("seconds", 1, 86400, 3600),
}
"""Query parameter of a path: name, smallest, largest, default."""


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    types: list[Any] = [struct for struct, _ in READ_PATHS.values()] + [RulesState, Restored, Rollback, Failure]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, schemas, strict=True))
    failure = _answer("Why not.", schema_of[Failure])
    paths = {path: _read(path, schema_of[struct], summary, failure) for path, (struct, summary) in READ_PATHS.items()}
    events = _answer("One event `tick` a period.", {"type": "string"}, "text/event-stream")
    paths["/api/v1/stream"] = {"get": {"summary": "Server-sent events for the page.", "responses": {"200": events}}}
    for path, summary, done, refusals in (
        (
            "/api/v1/session",
            "Open a browser session with the token; the answer sets a cookie.",
            {"204": {"description": "Opened."}},
            ("401", "403"),
        ),
        (
            "/api/v1/rules/rollback",
            "Put an earlier revision of the rules in force.",
            {"200": _answer("Done.", schema_of[RulesState])},
            ("400", "401", "403", "409"),
        ),
        (
            "/api/v1/restore",
            "Put back everything that was written, and enforce nothing more until the next start.",
            {"200": _answer("Done.", schema_of[Restored])},
            ("401", "403", "409"),
        ),
    ):
        responses = {**done, **dict.fromkeys(refusals, failure)}
        paths[path] = {"post": {"summary": summary, "security": [{"token": []}], "responses": responses}}
    asked = {"content": {"application/json": {"schema": schema_of[Rollback]}}}
    paths["/api/v1/rules/rollback"]["post"]["requestBody"] = asked
    return {
        "openapi": "3.1.0",
        "info": {"title": "cotenant on one host", "version": cotenant.__version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _read(path: str, schema: dict[str, Any], summary: str, failure: dict[str, Any]) -> dict[str, Any]:
    get: dict[str, Any] = {"summary": summary, "responses": {"200": _answer(summary, schema), "503": failure}}
    if path in PARAMETERS:
        name, low, high, default = PARAMETERS[path]
        values = {"type": "integer", "minimum": low, "maximum": high, "default": default}
        get["parameters"] = [{"name": name, "in": "query", "required": False, "schema": values}]
        get["responses"]["400"] = failure
    return {"get": get}


def _answer(description: str, schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {"description": description, "content": {media_type: {"schema": schema}}}
