"""The calls of schedules: `countledger schedule`."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from countledger import Schedule
from countledger.infra.calls.call import Call, Calls, Param
from countledger.infra.calls.shapes import NamespaceText, View
from countledger.ledger.clock import show_duration

SCHEDULES: Final = Calls(
    "schedule",
    """When and how old entries are compacted: merged into one item, so that reads stay cheap.

    Compaction never changes a number. A namespace without a schedule is compacted only by
    hand (countledger compact), and none has a schedule until you make one.
    """,
    tag="schedules",
)

Name = Annotated[NamespaceText, Param("Whose counters to compact.", metavar="NAMESPACE")]


class ScheduleView(View):
    """When and how the counters of a namespace are compacted."""

    namespace: str
    expression: str
    region: str
    min_entries: int
    min_age_ms: int | None
    retire: str
    archive: str | None

    def row(self) -> Mapping[str, object]:
        age_ms = self.min_age_ms
        return {
            "namespace": self.namespace,
            "when": self.expression,
            "min entries": self.min_entries,
            "min age": None if age_ms is None else show_duration(age_ms),
            "retire": self.retire,
            "archive": self.archive,
        }


class RunningView(ScheduleView):
    """A schedule, and whether it runs."""

    state: str

    @classmethod
    def of(cls, schedule: Schedule, state: str) -> "RunningView":
        return cls(**ScheduleView.model_validate(schedule).document(), state=state)

    def row(self) -> Mapping[str, object]:
        return {**super().row(), "state": self.state}


class DeletedView(View):
    """Whether the namespace had a schedule."""

    namespace: str
    deleted: bool


@SCHEDULES.op("list", costs="Half a read unit for each namespace of the stack.")
def list_schedules(call: Call) -> Iterator[ScheduleView]:
    """List the schedules of the stack, by namespace.

    One that cannot be read is named, and the exit code is 1.
    """
    found = call.ledger.schedules.list(on_corrupt=call.on_corrupt)
    return map(ScheduleView.model_validate, found)


@SCHEDULES.op("show", costs="One read unit, and a call of EventBridge Scheduler.")
def show_schedule(call: Call, namespace: Name) -> RunningView:
    """Show the schedule of one namespace, and whether it runs.

    "enabled" or "disabled", as EventBridge Scheduler has it; "missing" where it knows nothing of
    it: create or set makes it run.
    """
    schedules = call.ledger.schedules
    found = schedules.get(namespace)
    return RunningView.of(found, schedules.state(found))


@SCHEDULES.op("delete", costs="One read unit, one write unit, and a call of EventBridge Scheduler.")
def delete_schedule(call: Call, namespace: Name) -> DeletedView:
    """Delete the schedule of a namespace; its counters are compacted no more.

    What was compacted stays as it is. That there is no schedule is no error.
    """
    return DeletedView(namespace=namespace, deleted=call.ledger.schedules.delete(namespace))
