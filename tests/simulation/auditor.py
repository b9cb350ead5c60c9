"""The auditor: an account of its own of what must be, kept at every write of every table.

Safety is checked here as things happen: a bound, a sum, an entry deleted too early. Liveness is
checked once all is quiet, by `quiet`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from countledger.infra.memory.tables import Change
from countledger.ledger import keys
from tests.simulation.administrator_operations import RuledAccounts
from tests.simulation.alert_account import AlertAccount
from tests.simulation.claim_operations import ClaimAccounts
from tests.simulation.deletion_account import DeletionAccounts
from tests.simulation.event_account import EventAccounts
from tests.simulation.hold_operations import HoldAccounts
from tests.simulation.ledger_account import LedgerAccounts
from tests.simulation.number_account import NumberAccounts
from tests.simulation.quota_account import QuotaAccounts
from tests.simulation.schedule import Schedule
from tests.simulation.shape import LEDGER, Shape
from tests.simulation.strict_account import StrictAccounts, is_strict
from tests.simulation.window_account import WindowAccounts


@dataclass
class Auditor:
    """The accounts, and who is told of changes.

    Attributes:
        shape: of the simulation.
        schedule: time.
        home: the home region.
        by_hand: whether an item is being edited by hand just now.
        watchers: further accounts, of operations that bring their own.
        alerts: the account of each region's alerts.
        checks: how many changes were looked at.
    """

    shape: Shape
    schedule: Schedule
    home: str
    by_hand: bool = False
    watchers: list[Callable[[Change], None]] = field(default_factory=list)
    alerts: dict[str, AlertAccount] = field(default_factory=dict)
    checks: int = 0

    def __post_init__(self) -> None:
        """Empty accounts."""
        self.ledger = LedgerAccounts(self.shape)
        self.strict = StrictAccounts()
        self.events = EventAccounts()
        self.numbers = NumberAccounts()
        self.claims = ClaimAccounts()
        self.quotas = QuotaAccounts()
        self.deletions = DeletionAccounts()
        self.windows = WindowAccounts()
        self.watchers.append(self.windows.changed)
        self.watchers += [self.events.changed, self.numbers.changed, self.claims.changed]
        self.holds = HoldAccounts(self.schedule, self.shape.skew_ms // 2)
        self.watchers.append(self.holds.changed)
        self.watchers.append(self.quotas.changed)
        self.ruled = RuledAccounts()
        self.watchers.append(self.ruled.changed)

    def note(self, change: Change) -> None:
        """A change of an item anywhere."""
        self.checks += 1
        if self.by_hand:
            return
        key = change.key[1]
        if change.table.name == LEDGER:
            if self.ledger.is_entry(key):
                self.ledger.entry_changed(change, self.schedule.now_ms, home=change.local)
            elif key == keys.HEAD:
                if change.local:
                    self.ledger.head_changed(change, self.schedule.now_ms)
                self.ledger.head_shown(change, self.schedule.now_ms)
        elif is_strict(change):
            self.strict.changed(change)
        elif key == keys.TOTAL and "method" not in (change.after or {}):
            self.ledger.total_changed(change)
        self.deletions.changed(change, self.schedule.now_ms)
        for watcher in self.watchers:
            watcher(change)
