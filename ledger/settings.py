"""Settings of a process, from the environment: `COUNTLEDGER_*`."""

from __future__ import annotations

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    DAY_MS,
    HOUR_MS,
    REPLICATION_BOUND_DEFAULT_MS,
)


class Settings(BaseSettings):
    """Where the stack is and what the process may assume of its clock.

    Every field is read from the environment variable of its name, in capitals, behind
    `COUNTLEDGER_`. Names of tables that are not given are found through the stack's outputs.
    """

    model_config = SettingsConfigDict(env_prefix="COUNTLEDGER_", extra="ignore", frozen=True)

    stack_name: str = Field(default="countledger", min_length=1, max_length=128)
    ledger_table: str | None = None
    counters_table: str | None = None
    ledger_stream_arn: str | None = None
    counters_stream_arn: str | None = None
    quarantine_queue_url: str | None = None
    compaction_queue_url: str | None = None
    dispatcher_arn: str | None = None
    schedule_group: str | None = None
    scheduler_role_arn: str | None = None
    home_region: str | None = None
    alert_bus: str | None = None
    alert_topic_arns: str | None = None
    alert_dead_letter_queue_url: str | None = None
    ingest_stream_arn: str | None = None
    ingest_quarantine_queue_url: str | None = None
    ingest_expired_queue_url: str | None = None
    clock_skew_ms: int = Field(default=CLOCK_SKEW_DEFAULT_MS, ge=0, le=HOUR_MS)
    replication_bound_ms: int = Field(default=REPLICATION_BOUND_DEFAULT_MS, ge=0, le=DAY_MS)

    @classmethod
    def from_environment(cls, **given: object) -> Settings:
        """The settings of this process; what is given (and not None) wins over the environment.

        Raises:
            BadSetting: naming the variable and the rule that its value breaks.
        """
        try:
            return cls.model_validate({**cls().model_dump(), **_given(given)})
        except ValidationError as error:
            first = error.errors()[0]
            name = "_".join(str(part) for part in first["loc"]).upper()
            raise BadSetting(f"COUNTLEDGER_{name} is {first['input']!r}: {first['msg']}") from error


def _given(values: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
