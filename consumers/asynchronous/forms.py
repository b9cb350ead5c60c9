"""What reads and proves counters, for event loops: each method as in its synchronous class."""

from __future__ import annotations

from countledger.consumers.alerts.service import Alerts
from countledger.consumers.audit import Auditor
from countledger.consumers.groups import Groups
from countledger.consumers.rankings import Rankings
from countledger.consumers.window_audit import WindowAuditor
from countledger.consumers.windows import WindowSettings
from countledger.ledger.asynchronous.forms import (
    AsyncForm,
    awaited,
    iterated,
    iterated_in_thread,
    threaded,
)
from countledger.ledger.quarantine import QuarantineService


class AsyncGroups(AsyncForm[Groups]):
    """Groups of counters; see `Groups`."""

    add = awaited(Groups.add)
    remove = awaited(Groups.remove)
    get = awaited(Groups.get)
    of = iterated(Groups.of)
    show = iterated(Groups.show)
    list = iterated(Groups.list)
    top = awaited(Groups.top)
    delete = threaded(Groups.delete)
    switch_ranking = threaded(Groups.switch_ranking)


class AsyncRankings(AsyncForm[Rankings]):
    """Rankings of namespaces; see `Rankings`."""

    top = awaited(Rankings.top)
    is_on = awaited(Rankings.is_on)
    switch_on = threaded(Rankings.switch_on)
    switch_off = threaded(Rankings.switch_off)


class AsyncWindowSettings(AsyncForm[WindowSettings]):
    """The windows of namespaces; see `WindowSettings`."""

    enable = awaited(WindowSettings.enable)
    disable = awaited(WindowSettings.disable)
    of = awaited(WindowSettings.of)
    list = iterated(WindowSettings.list)


class AsyncAuditor(AsyncForm[Auditor]):
    """Verifies and repairs totals; see `Auditor`."""

    verify = threaded(Auditor.verify)
    verify_many = iterated_in_thread(Auditor.verify_many)
    verify_all = threaded(Auditor.verify_all)
    repair = threaded(Auditor.repair)
    repair_many = iterated_in_thread(Auditor.repair_many)
    repair_all = threaded(Auditor.repair_all)
    recover_progress = iterated_in_thread(Auditor.recover_progress)


class AsyncWindowAuditor(AsyncForm[WindowAuditor]):
    """Verifies and rebuilds windows; see `WindowAuditor`."""

    verify = iterated_in_thread(WindowAuditor.verify)
    verify_all = threaded(WindowAuditor.verify_all)
    rebuild = iterated_in_thread(WindowAuditor.rebuild)
    rebuild_all = threaded(WindowAuditor.rebuild_all)


class AsyncAlerts(AsyncForm[Alerts]):
    """The alerts of a stack; see `Alerts`."""

    create = awaited(Alerts.create)
    set = awaited(Alerts.set)
    get = awaited(Alerts.get)
    list = awaited(Alerts.list)
    unreadable = awaited(Alerts.unreadable)
    apply = iterated(Alerts.apply)
    delete = awaited(Alerts.delete)
    test = awaited(Alerts.test)
    log = iterated(Alerts.log)
    resend = iterated_in_thread(Alerts.resend)
    initial_scan = threaded(Alerts.initial_scan)


class AsyncQuarantine(AsyncForm[QuarantineService]):
    """Records in quarantine; see `QuarantineService`."""

    list = iterated(QuarantineService.list)
    show = awaited(QuarantineService.show)
    resend = iterated_in_thread(QuarantineService.resend)
    discard = iterated_in_thread(QuarantineService.discard)
