"""How much batch and mid work may ask for: whole numbers in, whole numbers out, of one resource at a time.

CPU is in thousandths of a core, memory in bytes. What is subtracted is rounded up and what is published rounded down,
in exact arithmetic, so that rounding never promises what is not there.
"""

import dataclasses
from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

import msgspec

Policy = Literal["usage", "request", "maxUsageRequest"]
POLICIES: tuple[Policy, ...] = ("usage", "request", "maxUsageRequest")


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one high-priority pod holds of the resource."""

    request: int | None
    """None: there is a metric of a pod that the cluster does not list."""
    used: int | None
    """None: there is no metric of the pod."""
    exclusive: bool = False
    """What it asked for is its own, used or not (LSE, by CPU)."""
    settled: bool = True
    """It runs for long enough that what it uses says what it needs."""

    def amount(self, policy: Policy) -> int:
        """Return what is kept for the pod.

        Without a metric that is its request in every policy. A pod that has just started, and one whose CPUs are its
        own, keep their request even where only use counts.
        """
        if self.used is None:
            return self.request or 0
        if self.request is None:
            return self.used
        if policy == "request":
            return self.request
        if policy == "maxUsageRequest" or self.exclusive or not self.settled:
            return max(self.request, self.used)
        return self.used


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The terms of the batch formula of one resource; :attr:`value` is what is published."""

    capacity: int
    margin: int
    """Kept free whoever is there: what is above the reclaim threshold."""
    system: int
    """What neither pods nor offline host applications use, or what is reserved for it, whichever is larger."""
    high_priority: int
    cap: int | None = None
    """An upper bound that the operator set."""
    amplification: Fraction = Fraction(1)
    """How much more the node's CPUs do than the fleet's reference CPU."""
    third_party: int = 0
    """What another scheduler gave out of the same resource."""

    @property
    def origin(self) -> int:
        """The amount that all schedulers share."""
        left = max(self.capacity - self.margin - self.system - self.high_priority, 0)
        bounded = left if self.cap is None else min(left, self.cap)
        if self.amplification <= 1:
            return bounded
        return bounded * self.amplification.numerator // self.amplification.denominator

    @property
    def value(self) -> int:
        return max(self.origin - self.third_party, 0)


def share(amount: int, percent: Fraction) -> int:
    """Return so many percent of an amount, rounded down."""
    return amount * percent.numerator // (percent.denominator * 100)


def batch(
    capacity: int,
    reclaim_percent: Fraction,
    policy: Policy,
    *,
    system_used: int,
    reserved: int,
    claims: Iterable[Claim],
    cap_percent: Fraction | None = None,
    amplification: Fraction = Fraction(1),
    third_party: int = 0,
) -> Batch:
    """Return the terms of what batch work may ask for.

    By request, the system counts by what is reserved for it; else by the larger of that and what it uses.
    """
    return Batch(
        capacity=capacity,
        margin=capacity - share(capacity, reclaim_percent),
        system=reserved if policy == "request" else max(system_used, reserved),
        high_priority=sum(claim.amount(policy) for claim in claims),
        cap=None if cap_percent is None else share(capacity, cap_percent),
        amplification=amplification,
        third_party=third_party,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mid:
    """The terms of the mid formula of one resource; :attr:`value` is what is published."""

    reclaimable: int
    """What prod work asked for and is predicted not to use."""
    unused: int
    """What nobody but mid work itself uses now."""
    unallocated: int
    """The share that mid work may have of what no prod pod asked for."""
    cap: int
    third_party: int = 0

    @property
    def value(self) -> int:
        promised = max(min(self.reclaimable, self.unused), 0) + self.unallocated
        return max(min(promised, max(self.unused, 0), self.cap) - self.third_party, 0)


def mid(
    capacity: int,
    *,
    reclaimable: int | None,
    node_used: int | None,
    mid_used: int,
    system: int,
    prod_request: int,
    unallocated_percent: Fraction,
    cap_percent: Fraction,
    third_party: int = 0,
) -> Mid:
    """Return the terms of what mid work may ask for. Without a prediction, or without the node's use, that part is 0.

    ``system`` is the larger of what the system uses and what is reserved for it.
    """
    return Mid(
        reclaimable=reclaimable or 0,
        unused=0 if node_used is None else capacity - max(node_used - mid_used, 0),
        unallocated=share(max(capacity - system - prod_request, 0), unallocated_percent),
        cap=share(capacity, cap_percent),
        third_party=third_party,
    )


def mid_static(capacity: int, reserved_percent: Fraction, third_party: int = 0) -> Mid:
    """Return the terms where an operator fixed the share of mid work."""
    amount = share(capacity, reserved_percent)
    return Mid(reclaimable=amount, unused=amount, unallocated=0, cap=amount, third_party=third_party)
