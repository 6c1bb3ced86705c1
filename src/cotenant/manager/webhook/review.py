"""``AdmissionReview`` (``admission.k8s.io/v1``): what the API server asks, and how it is answered."""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from cotenant.api.errors import BadRequest
from cotenant.manager.webhook.patching import Operation
from cotenant.units.malformed import MALFORMED, problem

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
WARNING_CHARACTERS = 200
"""The API server cuts warnings off, all of them together at 4,096 bytes."""


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One object that is about to be written."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    object: Any = None
    old_object: Any = None


class _Review(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: Request | None = None


_decoder = msgspec.json.Decoder(_Review)


def decode(body: bytes) -> Request:
    """Return the request of a review.

    :raises BadRequest: if it is not an AdmissionReview of version v1 with a request.
    """
    try:
        review = _decoder.decode(body)
    except MALFORMED as error:
        raise BadRequest(f"AdmissionReview: {problem(error, body, _Review)}") from None
    if review.api_version != API_VERSION or review.kind != KIND:
        raise BadRequest(f"{review.kind or 'no kind'} {review.api_version}: send an {KIND} of {API_VERSION}")
    if review.request is None or not review.request.uid:
        raise BadRequest("AdmissionReview: no request with a uid")
    return review.request


def allowed(request: Request, operations: Sequence[Operation] = (), warnings: Sequence[str] = ()) -> bytes:
    """Return the answer that lets an object through, changed by these operations."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if operations:
        patch = base64.b64encode(msgspec.json.encode(operations)).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    return _answer(response, warnings)


def refused(request: Request, reasons: Sequence[str], warnings: Sequence[str] = ()) -> bytes:
    """Return the answer that turns an object away."""
    status = {"code": 403, "reason": "Forbidden", "message": "; ".join(reasons)}
    return _answer({"uid": request.uid, "allowed": False, "status": status}, warnings)


def _answer(response: dict[str, Any], warnings: Sequence[str]) -> bytes:
    if warnings:
        response["warnings"] = [text[:WARNING_CHARACTERS] for text in warnings]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
