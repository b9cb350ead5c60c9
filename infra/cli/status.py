"""`countledger status`: how the stack is, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from countledger import CountLedger
from countledger.infra.cli.app import Options, shared
from countledger.infra.cli.engine import document_of, engine_is_installed
from countledger.infra.cli.output import FINDINGS, notice, show, show_json, show_rows, show_text
from countledger.infra.doctor import COUNTER_DEFAULT, CheckResult, doctor_of
from countledger.infra.status.facts import document
from countledger.infra.status.findings import findings
from countledger.infra.status.gathering import Gathering
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import BadSetting, StackNotFound, Unreachable
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.settings import LOCAL_STACK_ENDED, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.infra.cli.output import Row
    from countledger.infra.deploy.account_limits import ServiceQuotas
    from countledger.infra.local.running import Running
    from countledger.infra.status.facts import Facts, MappingFact, ScheduleFact
    from countledger.infra.status.findings import StatusFinding


# `countledger doctor`: whether an app can work here, and if not, why.


Counter = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="A counter that these credentials may use; it stays as it is."
    ),
]


@shared
def doctor(options: Options, *, counter: Counter = COUNTER_DEFAULT) -> int:
    """Check what an app needs here: versions, credentials, clock, stack, permissions.

    Run it with the environment of the app. It writes nothing: that an app may record is proved by a
    put whose condition cannot hold (one write unit). "denied" is no problem where the app is not to
    do that, such as an app that only records.

    Examples:
      countledger doctor
      countledger doctor --counter shop:doctor     [dim]an app limited to the namespace shop[/dim]
      countledger doctor --json

    Exit code 1: there is a problem.
    """
    found = list(doctor_of(options.connection(), counter).checks())
    rows = [{"check": one.name, "result": one.result, "found": one.says} for one in found]
    show(options, rows, [asdict(one) for one in found])
    if not options.json:
        for one in found:
            if one.do:
                notice(f"{one.name}: {one.do}")
    return FINDINGS if any(one.result is CheckResult.PROBLEM for one in found) else 0


@shared
def status(options: Options) -> int:
    """Show the state of the stack: what runs, how late totals are, where action is required.

    It shows the stack, its event source mappings, the lag of the totals, queues and their oldest
    messages, alarms, and the schedules of compaction with their due counters and last run. Each
    finding says what to do. Rules on one counter that had crossed before they were made are listed
    to those who may read rules and totals; "countledger alert show" looks at rules with a prefix.

    A stack of that name on this machine (countledger up) takes precedence over one in an account;
    name a profile, a region or an endpoint for the latter. Ages that CloudWatch measures require
    permission to read metrics.

    Examples:
      countledger status
      countledger status --stack-name shop --region eu-west-1
      countledger status --json                     [dim]findings and facts, for a script[/dim]

    Exit code 1: action is required, or there is no such stack.
    """
    name = options.settings.stack_name
    running = _running_here(options, name)
    client = options.client() if running is None else _client_of(running)
    try:
        _ = client.connection.region
    except BadSetting as error:  # nothing of AWS is configured: a stack of this machine was meant
        return _nothing(options, name, str(error))
    try:
        facts = Gathering(client).facts()
    except StackNotFound as error:
        return _nothing(options, name, str(error))
    except Unreachable:
        if not client.connection.stays_here:
            raise
        return _nothing(options, name, LOCAL_STACK_ENDED)
    found = findings(facts)
    if options.json:
        here = {"stack_name": name, "running": True} if running is None else document_of(running)
        show_json({**here, **document(facts, found)})
    else:
        show_facts(facts, found, running)
    return FINDINGS if found else 0


def _nothing(options: Options, name: str, reason: str) -> int:
    show(options, [{"stack": name, "running": False}], {"stack_name": name, "running": False})
    notice(reason)
    return FINDINGS


def _running_here(options: Options, name: str) -> Running | None:
    """The stack of this machine, unless the options name another one."""
    elsewhere = options.profile or options.region or options.endpoint_url
    if elsewhere or not engine_is_installed():
        return None
    from countledger.infra.local import background  # noqa: PLC0415 - what it imports is an extra

    return background.status(name)


def _client_of(running: Running) -> CountLedger:
    """A client of it, whatever the environment says of another stack."""
    from countledger.infra.local.stack import session_in  # noqa: PLC0415 - an extra

    settings = Settings.of_stack(running.stack_name)
    return CountLedger(settings, session=session_in(running.environment), endpoint_url=running.url)


def show_facts(facts: Facts, found: Sequence[StatusFinding], running: Running | None) -> None:
    for heading, rows in (
        ("", _stack(facts, running)),
        ("event source mappings", _mappings(facts)),
        ("totals", _totals(facts)),
        ("queues", _queues(facts)),
        ("quarantine", _quarantined(facts)),
        ("alarms", _alarms(facts)),
        ("schedules", [_schedule(one, facts.at_ms) for one in facts.schedules]),
        ("windows", _windows(facts)),
        ("rules that wait for the next crossing", _silent(facts)),
        ("quotas of the account", _quotas(facts.quotas)),
    ):
        if rows:
            if heading:
                show_text(f"\n{heading}")
            show_rows(rows)
    show_text("")
    for one in found:
        show_text(f"! {one.subject}: {one.says}\n  -> {one.do}")
    show_text(f"action required: {len(found)}" if found else "no action required")


def _quotas(quotas: ServiceQuotas) -> list[Row]:
    """What the account allows; what it does not say is listed as unknown."""
    known: dict[str, int | None] = {
        "concurrency of Lambda": quotas.concurrency,
        "of it unreserved": quotas.unreserved,
        "provisioned write units": (quotas.account_units or {}).get("write"),
        "write units of one table": quotas.table_write_units,
        **quotas.listed,
    }
    rows: list[Row] = [
        {"quota": name, "value": "unknown" if value is None else value}
        for name, value in known.items()
    ]
    return rows + [{"quota": what, "value": "not readable"} for what in quotas.unread]


def _stack(facts: Facts, running: Running | None) -> list[Row]:
    if facts.stack is None:
        return []
    here: dict[str, object] = {}
    if running is not None:
        pids = " ".join(map(str, running.pids))
        here = {"url": running.url, "since": running.started_at, "pids": pids, "log": running.log}
    changed = to_datetime(facts.stack.changed_at_ms)
    return [
        {
            "stack": facts.stack.name,
            "status": facts.stack.status,
            "changed": changed,
            "bundle": facts.stack.bundle.rpartition("/")[2],
            **({"HTTP API": facts.stack.http_url} if facts.stack.http_url else {}),
            **here,
        }
    ]


def _mappings(facts: Facts) -> list[Row]:
    ages = {one.name.removesuffix("Function"): one.age_ms for one in facts.iterators}
    return [
        {
            "mapping": one.name.removesuffix("Mapping"),
            "state": _state(one),
            "iterator age": _duration(ages.get(one.name.removesuffix("Mapping"))),
            "last result": one.result,
        }
        for one in facts.mappings
    ]


def _state(mapping: MappingFact) -> str:
    return "played by a pump here" if mapping.played else mapping.state


def _totals(facts: Facts) -> list[Row]:
    fresh = facts.freshness
    if fresh is None:
        return []
    through_ms, since_ms = fresh.handled_through_ms, fresh.waiting_since_ms
    behind = None if since_ms is None else _duration(max(0, facts.at_ms - since_ms))
    return [
        {
            "oldest total": "up to date" if behind is None else f"{behind} behind",
            "last change": None if through_ms is None else to_datetime(through_ms),
            "idle shards": fresh.idle,
        }
    ]


def _queues(facts: Facts) -> list[Row]:
    return [
        {
            "queue": one.name,
            "waiting": one.waiting,
            "in flight": one.in_flight,
            "oldest": _duration(one.oldest_ms),
        }
        for one in facts.queues
    ]


def _quarantined(facts: Facts) -> list[Row]:
    return [
        {"source": one.source, "waiting": one.waiting, "oldest": _duration(one.oldest_ms)}
        for one in facts.quarantined
    ]


def _alarms(facts: Facts) -> list[Row]:
    states = [one.state for one in facts.alarms]
    counts = {name: states.count(name) for name in ("ALARM", "OK", "INSUFFICIENT_DATA")}
    return [{name.lower().replace("_", " "): n for name, n in counts.items()}] if states else []


def _silent(facts: Facts) -> list[Row]:
    if facts.silent is None:
        missing = "these credentials may not read rules and totals, as ReadPolicyArn allows"
        return [{"rules": f"not looked at: {missing}"}]
    return [
        {
            "rule": one.rule,
            "counter": one.counter,
            "value": one.value,
            "was past": one.passed,
            "before": to_datetime(one.effective_at_ms),
            "to alert at once": f"countledger alert set {one.rule} --now",
        }
        for one in facts.silent
    ]


def _windows(facts: Facts) -> list[Row]:
    return [
        {
            "namespace": one.namespace,
            "by": one.by,
            "time zone": one.time_zone,
            "from": to_datetime(one.from_at_ms),
            "until": None if one.until_at_ms is None else to_datetime(one.until_at_ms),
            "tzdata": one.tzdata,
        }
        for one in facts.windows
    ]


def _schedule(fact: ScheduleFact, now_ms: int) -> Row:
    last = fact.last
    row: dict[str, object] = {
        "namespace": fact.schedule.namespace,
        "when": fact.schedule.expression,
        "trigger": fact.state,
        "due": fact.due if fact.due < fact.due_max else f"{fact.due} or more",
        "last run": None if last is None else f"{_duration(now_ms - last.ticked_at_ms)} ago",
    }
    if last is None:
        return {**row, "compacted": None, "merged": None, "failed": None, "tampered": None}
    work = last.work
    return {
        **row,
        "compacted": work.counters,
        "merged": work.merged,
        "failed": work.failed,
        "tampered": work.tampered,
    }


def _duration(duration_ms: int | None) -> str | None:
    if duration_ms is None:
        return None
    return show_duration(duration_ms // SECOND_MS * SECOND_MS) if duration_ms else "0 s"
