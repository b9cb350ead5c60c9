"""Quotas are created, changed, listed and deleted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import WrongRegion
from countledger.producers.quotas.administration import creating, deleting, limiting, reading
from countledger.producers.quotas.limits import Limits
from countledger.producers.quotas.quota import (
    Quota,
    check_amount,
    check_method,
    check_per,
    check_prefix,
    check_zone,
    decode_quota,
)

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.producers.strict.context import MethodContext


@dataclass(frozen=True, slots=True)
class QuotaAdmin:
    """The quotas of a stack themselves.

    Attributes:
        context: clients, table, clock and randomness.
        region: where this process works.
        home_region: where quotas live.
        limits: those that this process has read.
    """

    context: MethodContext
    region: str
    home_region: str
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        """Nothing read yet."""
        object.__setattr__(self, "limits", Limits(self.context))

    def create(
        self,
        prefix: str,
        *,
        limit: Amount,
        per: str,
        time_zone: str = "UTC",
        method: str = "marker",
    ) -> Quota:
        """Create the quota of every counter whose name begins with a prefix: one write unit.

        Args:
            prefix: at least a namespace and its colon, as `llm:`. If several quotas fit a counter,
                the one with the longest prefix holds.
            limit: how much each counter may use in one window, 0 or more.
            per: the kind of window: `minute` (of UTC), `hour`, `day` or `month` of the time zone.
            time_zone: a name of the IANA database.
            method: how `acquire` remembers a key: `request_token` for ten minutes, `marker`
                for at least a day.

        Raises:
            QuotaExists: a quota of that prefix exists.
            BadQuota: an argument breaks its rule.
            Unclear, Throttled: look with `list`, and call again.
            WrongRegion: this is not the home region.
        """
        self.refuse_elsewhere(prefix)
        check_prefix(prefix)
        now = to_datetime(self.context.clock.now_ms())
        fixed = (
            check_amount("limit", limit, zero=True),
            check_per(per),
            check_zone(time_zone),
            check_method(method),
        )
        return self.context.run(
            creating(self.context, lambda one: Quota(prefix, *fixed, 1, one, False, now))
        )

    def set_limit(self, prefix: str, limit: Amount) -> None:
        """Change the limit of a quota, also while it is used: a read unit and a write unit.

        Raises:
            NoSuchQuota: no quota has that prefix.
            BadQuota, Unclear, Throttled, WrongRegion: as `create`.
        """
        self.refuse_elsewhere(prefix)
        amount = check_amount("limit", limit, zero=True)
        self.context.run(limiting(self.context, check_prefix(prefix), amount, None))

    def override(self, counter: str, limit: Amount | None) -> None:
        """Give one counter a limit of its own; None: that of its quota again.

        Two or three read units and four write units.

        Raises:
            NoSuchQuota: no quota is for the counter.
            BadQuota, Unclear, Throttled, WrongRegion: as `create`.
        """
        self.refuse_elsewhere(counter)
        amount = None if limit is None else check_amount("limit", limit, zero=True)
        self.limits.forget(keys.check_counter(counter))
        steps = self.limits.of(counter, self.context.attempts())
        prefix = self.context.run(steps).quota.prefix
        self.context.run(limiting(self.context, prefix, amount, counter))
        self.limits.forget(counter)

    def delete(self, prefix: str) -> None:
        """Delete a quota: a read unit, a write unit, and one for each counter's own limit.

        A process that has read the quota admits under it for up to five seconds more. What the
        windows have used expires by itself. A quota that is created again begins with empty
        windows, and remembers no key.

        Raises:
            NoSuchQuota: no quota has that prefix.
            Unclear, Throttled, WrongRegion: as `create`.
        """
        self.refuse_elsewhere(prefix)
        self.context.run(deleting(self.context, check_prefix(prefix)))

    def list(self) -> list[Quota]:
        """All quotas, by their prefixes: a read unit for each 4 KB.

        Raises:
            CorruptItem: one cannot be read.
            WrongRegion: this is not the home region.
        """
        self.refuse_elsewhere("all")
        items = self.context.run(reading(self.context, keys.QUOTA_PREFIX))
        return [decode_quota(item) for item in items]

    def overrides(self, quota: Quota) -> dict[str, Amount]:
        """The limits that counters of a quota have of their own: a read unit for each 4 KB."""
        self.refuse_elsewhere(quota.prefix)
        partition = keys.QUOTA_PREFIX + quota.incarnation
        items = self.context.run(reading(self.context, partition))
        return {item["part"]: item["limit"] for item in items if "limit" in item}

    def refuse_elsewhere(self, what: str) -> None:
        """Allow calls in the home region only.

        Raises:
            WrongRegion: this is another region.
        """
        if self.region != self.home_region:
            raise WrongRegion(
                f"{what!r}: quotas live in the home region {self.home_region} alone, where one "
                f"copy decides; this is {self.region}: call there"
            )
