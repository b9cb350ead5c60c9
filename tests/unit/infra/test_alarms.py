"""What the alarms over several metrics say to series of data: `metric_math` evaluates them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from countledger.infra.cost import (
    BY_DELETES,
    LAMBDA_GB_SECOND,
    LAMBDA_REQUEST,
    MILLION,
    READ_UNITS_MILLION,
    WRITE_UNITS_MILLION,
)
from countledger.infra.template import load_template, resource
from countledger.producers.strict.hold import BUCKETS
from tests.unit.infra.metric_math import listed, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.infra.metric_math import Series

# What the guide says of the costs of alarms, probe, releaser and HTTP API.
COSTS = (Path(__file__).parents[3] / "docs/costs.md").read_text()
MAPPINGS = ["MaterializerMappingAlarm", "EvaluatorMappingAlarm", "IngestMappingAlarm"]
FILTERED = MAPPINGS[:2]
# A mapping that works polls each shard four times a second, and counts empty polls as well.
POLLS = 4.0 * 900


@dataclass(frozen=True)
class Facts:
    """One period of a mapping; None: the metric has no data."""

    written: float | None = None
    polls: float | None = None
    polled: float | None = None
    filtered: float | None = None
    failed: float | None = None
    invoked: float | None = None


IDLE = Facts(polls=POLLS, polled=0)
HEALTHY = Facts(written=900, polls=POLLS, polled=900, filtered=100, failed=0, invoked=40)
COMPACTING = Facts(written=4_000, polls=POLLS, polled=4_000, filtered=4_000)
DUPLICATES = Facts(written=50, polls=POLLS, polled=0)
DISABLED = Facts(written=900)
DISABLED_IDLE = Facts()
DISABLED_COMPACTING = Facts(written=4_000)
NOT_INVOKED = Facts(written=900, polls=POLLS, polled=900, filtered=100)
# The batch in hand is tried again and again, and nothing further is read.
REFUSED = Facts(written=900, polls=POLLS, polled=0, filtered=0, failed=30)
FAILING = Facts(written=900, polls=POLLS, polled=0, filtered=0, failed=900, invoked=9)
THROTTLED_SOMETIMES = Facts(written=900, polls=POLLS, polled=0, failed=9, invoked=1)


def said(alarm: str, *periods: Facts) -> str:
    """What a mapping's alarm says after these periods."""
    properties = resource(alarm)
    ids = [one["Id"] for one in listed(properties) if not one["ReturnData"]]
    return state_of(properties, {name: [getattr(one, name) for one in periods] for name in ids})


@pytest.mark.parametrize("alarm", MAPPINGS)
@pytest.mark.parametrize(
    ("periods", "state"),
    [
        pytest.param((DISABLED, DISABLED), "ALARM", id="disabled"),
        pytest.param((DISABLED_COMPACTING, DISABLED_COMPACTING), "ALARM", id="disabled-compacting"),
        pytest.param((NOT_INVOKED, NOT_INVOKED), "ALARM", id="polls-and-does-not-invoke"),
        pytest.param((NOT_INVOKED, REFUSED), "ALARM", id="cannot-invoke"),
        pytest.param((REFUSED, REFUSED), "ALARM", id="cannot-invoke-for-long"),
        pytest.param((IDLE, IDLE), "OK", id="idle"),
        pytest.param((HEALTHY, HEALTHY), "OK", id="healthy"),
        pytest.param((HEALTHY, IDLE), "OK", id="the-writes-end"),
        pytest.param((DUPLICATES, DUPLICATES), "OK", id="only-duplicates"),
        pytest.param((DISABLED_IDLE, DISABLED_IDLE), "OK", id="disabled-and-nothing-is-written"),
        pytest.param((HEALTHY, DISABLED), "OK", id="the-last-period-is-late"),
        pytest.param((DISABLED, HEALTHY), "OK", id="works-again"),
        pytest.param((FAILING, FAILING), "OK", id="fails-which-the-alarm-on-errors-sees"),
        pytest.param((THROTTLED_SOMETIMES, THROTTLED_SOMETIMES), "OK", id="throttled-and-alive"),
    ],
)
def test_a_dead_mapping_alarms_and_a_live_one_does_not(
    alarm: str, periods: tuple[Facts, ...], state: str
) -> None:
    """IteratorAge is measured when a batch ends, so the alarms on lag do not see a dead mapping."""
    assert said(alarm, *periods) == state


@pytest.mark.parametrize("alarm", FILTERED)
def test_writes_of_compaction_alone_are_no_sign_of_a_dead_mapping(alarm: str) -> None:
    """The mapping's filter drops them, so nothing is invoked for hours."""
    assert said(alarm, COMPACTING, COMPACTING) == "OK"
    assert said(alarm, COMPACTING, IDLE) == "OK"


@pytest.mark.parametrize("alarm", FILTERED)
@pytest.mark.parametrize("seed", range(20))
def test_a_mapping_that_works_never_alarms(alarm: str, seed: int) -> None:
    """Whenever something is written, whenever periods begin, however long batches gather."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    longest = load_template()["Parameters"]["BatchingWindowSeconds"]["MaxValue"]
    period = next(one for one in listed(resource(alarm)) if "MetricStat" in one)["MetricStat"][
        "Period"
    ]
    end, times = 4 * period, []
    at = chance.uniform(0, 1_200)
    while at < end:
        times.append((at, chance.random() < 0.7, at + chance.uniform(0, longest)))
        at += chance.choice([1, 60, 290, 600, 900, 1_100, 1_800]) * chance.uniform(0.9, 1.1)
    for begin in range(0, end - 2 * period, 60):
        facts = []
        for since in (begin, begin + period):
            until = since + period
            polled = [passes for when, passes, _ in times if since <= when < until]
            invoked = sum(passes and since <= when < until for _, passes, when in times)
            facts.append(
                Facts(
                    written=len(polled) or None,
                    polls=POLLS,
                    polled=len(polled),
                    filtered=polled.count(False),
                    failed=0 if invoked else None,
                    invoked=invoked or None,
                )
            )
        assert said(alarm, *facts) == "OK", (begin, facts)


def of_sums(alarm: str, series: Mapping[str, Series]) -> str:
    """What an alarm says to series by the ids of its metrics; the others have no data."""
    properties = resource(alarm)
    ids = [one["Id"] for one in listed(properties) if not one["ReturnData"]]
    assert set(series) <= set(ids)
    length = properties["EvaluationPeriods"]
    return state_of(properties, {name: series.get(name, [None] * length) for name in ids})


@pytest.mark.parametrize(
    ("alarm", "metric"),
    [
        ("FunctionThrottleAlarm", "materializer"),
        ("FunctionThrottleAlarm", "ingest"),
        ("FunctionThrottleAlarm", "compactor"),
        ("LedgerThrottleAlarm", "table_itself"),
        ("CountersThrottleAlarm", "table_itself"),
        ("CountersThrottleAlarm", "ranks"),
        ("CountersThrottleAlarm", "group_ranks"),
        ("CountersThrottleAlarm", "due"),
    ],
)
def test_throttling_that_lasts_alarms_and_a_burst_does_not(alarm: str, metric: str) -> None:
    assert of_sums(alarm, {metric: [1, 1, 1]}) == "ALARM"
    assert of_sums(alarm, {metric: [0, 500, None]}) == "OK"
    assert of_sums(alarm, {}) == "OK"


@pytest.mark.parametrize("group", ["", "timer_"])
def test_an_invocation_that_is_given_up_alarms_and_one_failed_attempt_does_not(group: str) -> None:
    """A failed attempt is tried again; an invocation that is given up is not."""
    assert of_sums("ScheduleAlarm", {f"{group}given_up": [1]}) == "ALARM"
    assert of_sums("ScheduleAlarm", {f"{group}failed": [3]}) == "ALARM"
    assert of_sums("ScheduleAlarm", {f"{group}failed": [2]}) == "OK"
    assert of_sums("ScheduleAlarm", {}) == "OK"


@pytest.mark.parametrize("job", ["failed", "aborted", "expired", "not_copied"])
def test_one_backup_or_copy_that_fails_alarms(job: str) -> None:
    assert of_sums("BackupAlarm", {job: [1]}) == "ALARM"
    assert of_sums("BackupAlarm", {job: [0]}) == of_sums("BackupAlarm", {}) == "OK"


def test_the_probe_alarms_when_it_measures_nothing() -> None:
    """The objective that users rely on: silence is no sign of health."""
    five: list[Series] = [
        [None] * 5,
        [70] * 5,
        [None, 70, None, 43, 103],
        [2, 70, 70, 70, 70],
        [2] * 5,
    ]
    said = [
        state_of(resource("ProbeAlarm") | {"Threshold": 60}, {"EmitToTotalSeconds": series})
        for series in five
    ]

    assert said == ["ALARM", "ALARM", "OK", "OK", "OK"]


def test_overdue_holds_alarm_and_so_does_a_releaser_that_does_not_run() -> None:
    """Each run sends the metric: silence means that none came to its end."""
    five: list[Series] = [[None, None], [400, 301], [None, 301], [400, 0], [300, 300], [None, 0]]
    said = [
        state_of(resource("OverdueHoldsAlarm"), {"OverdueHoldSeconds": series}) for series in five
    ]

    assert said == ["ALARM", "ALARM", "ALARM", "OK", "OK", "OK"]


def test_the_documents_say_what_the_releaser_costs() -> None:
    """Its parts as docs/costs.md lists them, while nothing has expired."""
    runs, memory = 30 * 24 * 60, resource("Releaser")["MemorySize"] / 1_024
    parts = {
        "Lambda": runs * (0.3 * memory * LAMBDA_GB_SECOND + LAMBDA_REQUEST),
        "reads": runs * BUCKETS / 2 * READ_UNITS_MILLION / MILLION,
        "CloudWatch": 3 * 0.3 + 2 * 0.1,
    }

    assert f"0.3 seconds at 512 MB (${parts['Lambda']:.2f})" in COSTS
    assert f"eight read units a run (${parts['reads']:.2f})" in COSTS
    assert f"costs about ${sum(parts.values()):.2f} a month" in COSTS


def alarms_over_several() -> dict[str, dict[str, Any]]:
    """The alarms with an expression."""
    return {
        name: one["Properties"]
        for name, one in load_template()["Resources"].items()
        if one["Type"] == "AWS::CloudWatch::Alarm" and "Metrics" in one["Properties"]
    }


@pytest.mark.parametrize("name", alarms_over_several())
def test_an_expression_uses_its_metrics_and_they_are_of_one_period(name: str) -> None:
    """CloudWatch refuses an alarm over several periods, or over more than ten metrics."""
    found = listed(alarms_over_several()[name])
    stats = {one["Id"]: one["MetricStat"] for one in found if "MetricStat" in one}
    (returned,) = [one for one in found if one["ReturnData"]]

    assert len(found) <= 10
    assert len({one["Period"] for one in stats.values()}) == 1
    assert "METRICS()" in returned["Expression"] or all(
        f"({metric}," in returned["Expression"] for metric in stats
    )
    # Averages cannot be added up; the largest of them can be asked for.
    allowed = {"Average"} if "MAX(" in returned["Expression"] else {"Sum", "SampleCount"}
    assert all(one["Stat"] in allowed for one in stats.values())


def test_every_mapping_of_a_stream_measures_what_it_polls() -> None:
    """Without this setting Lambda measures no polls, and the alarm would take it for dead."""
    for name, one in load_template()["Resources"].items():
        if one["Type"] == "AWS::Lambda::EventSourceMapping" and name != "CompactorMapping":
            assert one["Properties"]["MetricsConfig"] == {"Metrics": ["EventCount"]}, name
            assert f"{name}Alarm" in MAPPINGS


def test_the_documents_say_what_the_probe_costs() -> None:
    """Its parts as docs/costs.md lists them, at the prices of `countledger cost`."""
    runs, memory = 30 * 24 * 60, resource("ProbeFunction")["MemorySize"] / 1_024
    parts = {
        "Lambda": runs * (2 * memory * LAMBDA_GB_SECOND + LAMBDA_REQUEST),
        # The entry, its total, the progress of the shard; and to merge it.
        "writes": runs * (3 + BY_DELETES) * WRITE_UNITS_MILLION / MILLION,
        "reads": runs * 17 * READ_UNITS_MILLION / MILLION,
        "CloudWatch": 0.5 + 0.07,
    }

    assert f"two seconds at 512 MB (${parts['Lambda']:.2f})" in COSTS
    assert f"compaction (${parts['writes']:.2f})" in COSTS
    assert f"read units a run (${parts['reads']:.2f})" in COSTS
    assert f"about ${sum(parts.values()) + 0.06:.1f}0 a month" in COSTS


def test_the_documents_say_what_a_request_over_http_costs() -> None:
    memory = resource("HttpFunction")["MemorySize"]["Ref"]
    gb = load_template()["Parameters"][memory]["Default"] / 1_024
    parts = LAMBDA_REQUEST * MILLION + 0.03 * gb * LAMBDA_GB_SECOND * MILLION

    assert f"an\ninvocation of 30 ms at 1,024 MB of Lambda each (${parts:.2f} in all)" in COSTS


_BY_DEFAULT = {"IsHome", "ReleasesHolds"}


def test_the_documents_say_what_the_alarms_cost() -> None:
    """CloudWatch charges for each metric that an alarm looks at."""
    always = everything = 0
    for one in load_template()["Resources"].values():
        if one["Type"] == "AWS::CloudWatch::Alarm":
            metrics = one["Properties"].get("Metrics", [{}])
            stats = [found for found in metrics if "Expression" not in found]
            everything += len(stats)
            if one.get("Condition", "IsHome") in _BY_DEFAULT:
                always += sum(found.get("Fn::If", ["IsHome"])[0] in _BY_DEFAULT for found in stats)

    assert f"({always}, so ${always / 10:.2f} a month; {everything} with" in COSTS
