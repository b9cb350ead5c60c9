"""The services that alerts take, as whoever handles alerts asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from countledger.consumers.alerts.dead_letters import Resender
    from countledger.consumers.alerts.initial_scan import InitialScan
    from countledger.consumers.alerts.publish import Publisher
    from countledger.consumers.alerts.rule import Target


class TargetCheck(Protocol):
    """Tells whether alerts can reach a target."""

    def check(self, target: Target) -> None:
        """Return only if they can.

        Raises:
            BadRule, TargetRefused: they cannot.
        """


class AlertServices(Protocol):
    """The services that alerts take; each is made ready at its first use."""

    @property
    def targets(self) -> TargetCheck:
        """What may be told of alerts."""

    @property
    def publisher(self) -> Publisher:
        """Takes alerts to their targets."""

    @property
    def resender(self) -> Resender:
        """Sends dead letters again."""

    @property
    def initial_scan(self) -> InitialScan:
        """Tells of totals that are beyond a threshold already."""
