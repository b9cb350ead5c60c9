"""Operations on alerts: rules made, changed and deleted; what stands beyond; dead letters."""

from contextlib import suppress
from typing import Any, Final

from countledger.consumers.alerts.rule import Rule
from countledger.consumers.alerts.service import Alerts
from countledger.ledger.errors import (
    BadRule,
    BadSetting,
    NoSuchRule,
    NoWindows,
    RuleExists,
    TargetRefused,
)
from countledger.ledger.keys import TOTAL
from countledger.ledger.limits import SECOND_MS
from tests.simulation import strict_operations as strict
from tests.simulation.client import Client, Memory
from tests.simulation.evaluating import alerts_of
from tests.simulation.process import Process
from tests.simulation.shape import COUNTERS
from tests.simulation.targets import BUS, topic_of
from tests.simulation.world import World

_NAMES: Final = ("a", "b", "c")
_SETTLED_MS: Final = 7 * SECOND_MS
_REFUSALS: Final = (BadRule, BadSetting, NoSuchRule, NoWindows, RuleExists, TargetRefused)


def create(client: Client) -> None:
    """A rule is made."""
    name = client.random.choice(_NAMES)
    spec = _wish(client.world, client.memory, client.region)
    try:
        rule = _alerts(client).create(name, evaluate_in=client.region, **spec)
    except _REFUSALS as error:
        client.tell(f"rule {name}: {error}")
    else:
        client.tell(f"rule {name}: {rule}")
        if client.random.random() < 0.3:
            run_initial_scan(client.process, rule)


def scan_now(client: Client) -> None:
    """`alert set NAME --now`: of a new revision, or going on where that of another failed."""
    name = client.random.choice(_NAMES)
    spec = _wish(client.world, client.memory, client.region)
    wished: dict[str, Any] = (
        {"threshold": spec["threshold"]} if client.random.random() < 0.5 else {}
    )
    try:
        rule = _alerts(client).set(name, **wished)
    except _REFUSALS as error:
        client.tell(f"rule {name}: {error}")
    else:
        run_initial_scan(client.process, rule)


def run_initial_scan(process: Process, rule: Rule) -> None:
    """What is beyond already is told; of windows nothing is."""
    if rule.window is not None:
        return
    world = process.world
    account = world.auditor.alerts[process.region].standing
    account.asked.add(rule.name)
    began_ms = world.schedule.now_ms
    told = alerts_of(world, process).initial_scan(rule)
    world.tell(f"{process.name}: rule {rule.name} told of {told} that stood beyond")
    # By a clock that is ahead a rule is in force before the records that it evaluates.
    since_ms = rule.effective_from_ms if process.error_ms <= 0 else began_ms
    account.answered(rule.revision, since_ms, max(world.schedule.now_ms, rule.effective_from_ms))


def change(client: Client) -> None:
    """Something about a rule is otherwise from now on."""
    name = client.random.choice(_NAMES)
    spec = _wish(client.world, client.memory, client.region)
    wished: dict[str, Any] = {
        one: spec.get(one) for one in ("threshold", "direction", "rearm", "step")
    }
    if client.random.random() < 0.5:
        wished = {"threshold": spec["threshold"]}
    try:
        rule = _alerts(client).set(name, **wished)
    except _REFUSALS as error:
        client.tell(f"rule {name}: {error}")
    else:
        client.tell(f"rule {name}: {rule}")


def delete(client: Client) -> None:
    """A rule is deleted, unless another call changes it meanwhile."""
    name = client.random.choice(_NAMES)
    try:
        client.tell(f"rule {name} deleted: {_alerts(client).delete(name)}")
    except RuleExists as error:
        client.tell(f"rule {name}: {error}")


def resend(client: Client) -> None:
    """Some dead letters are sent again."""
    resent = list(_alerts(client).resend(client.random.choice([1, None])))
    client.tell(f"resent: {[(one.dead_letter, one.reason) for one in resent]}")


def set_up(world: World, memory: Memory) -> None:
    """Rules that are there before anything goes wrong, and in force."""
    for region in world.regions:
        for name in _NAMES[: world.random.choice([1, 2, 3])]:
            spec = _wish(world, memory, region)
            with suppress(BadSetting, NoWindows):  # windows finer than those that there are
                alerts_of(world, world.process(region, "set-up")).create(
                    name, evaluate_in=region, **spec
                )
    world.schedule.pause(_SETTLED_MS)


def _alerts(client: Client) -> Alerts:
    return alerts_of(client.world, client.process)


def _wish(world: World, memory: Memory, region: str) -> dict[str, Any]:
    """A rule for counters of one kind: of a ledger, or strict."""
    random = world.random
    strictly = (
        region == world.home and strict.plain("atomic") in memory.strict and random.random() < 0.75
    )
    windows = world.auditor.windows.settings is not None and random.random() < 0.5
    if strictly:
        spec = _strictly(world)
    else:
        spec = (_of_a_window if windows else _of_a_ledger)(world, memory, region)
    namespace = strict.NAMESPACE if strictly else "n"
    if random.random() < 0.5:
        spec["prefix"] = random.choice(["", f"{namespace}:"])
    else:
        plain = [
            one
            for one, (_, bins) in sorted(memory.strict.items())
            if bins == 1 and one.startswith(f"{strict.NAMESPACE}:")
        ]
        spec["counter"] = random.choice(plain if strictly else sorted(memory.free))
    spec["to"] = random.choice([BUS, topic_of(region)])
    return spec


def _strictly(world: World) -> dict[str, Any]:
    """Thresholds between the bounds of strict counters."""
    random = world.random
    threshold = random.randint(strict.LOWER + 1, strict.UPPER - 2)
    kind = random.choice(["plain", "step", "rearm", "rearm"])
    directions = ["rising", "falling"] if kind == "rearm" else ["rising", "falling", "both"]
    direction = random.choice(directions)
    spec: dict[str, Any] = {"threshold": threshold, "direction": direction}
    if kind == "step":
        spec["step"] = random.randint(1, 4)
    elif kind == "rearm":
        gap = random.randint(1, 4)
        spec["rearm"] = threshold - gap if direction == "rising" else threshold + gap
    return spec


def _of_a_window(world: World, memory: Memory, _region: str) -> dict[str, Any]:
    """Thresholds that a few entries of one window may reach."""
    random = world.random
    free = memory.free[random.choice(sorted(memory.free))]
    delta = 4 ** (free[-1] if free else 1)
    return {
        "threshold": random.choice([1, delta // 2 + 1, delta, delta + delta // 4]),
        "direction": random.choice(["rising", "rising", "both", "falling"]),
        "window": random.choice(["minute", "hour", "day", "month"]),
    }


def _of_a_ledger(world: World, memory: Memory, region: str) -> dict[str, Any]:
    """Thresholds that the coming entries may reach."""
    random = world.random
    counter = random.choice(sorted(memory.free))
    item = world.copies[region][COUNTERS].items.get((counter, TOTAL), {})
    total = item.get("total", 0)
    free = memory.free[counter]
    delta = 4 ** (free[-1] if free else 1)
    threshold = total + random.choice([1, delta // 2, delta, delta + delta // 4])
    spec: dict[str, Any] = {"threshold": threshold, "direction": random.choice(["rising", "both"])}
    kind = random.choice(["plain", "step", "rearm"])
    if kind == "step":
        spec["step"] = max(1, delta // random.choice([1, 3, 50, 1_000]))
    elif kind == "rearm" and spec["direction"] == "rising":
        spec["rearm"] = threshold - random.choice([1, 3, delta])
    return spec
