"""A patch of MiniStack 1.5.33: alarms over several metrics. It is imported by `engine_process.py`.

Such an alarm is described, and its state can be set; no engine evaluates its expression.
"""

from typing import Any

from ministack.services.cloudformation import provisioners


def patch_alarms_over_several_metrics() -> None:
    """An alarm may have an expression over metrics instead of one metric.

    MiniStack refuses it. The record names the expression in the place of the metric, which has no
    data. As on AWS, exactly one of the metrics and expressions is the one that the alarm looks at.
    """
    plain = provisioners._cw_metric_alarm_record  # noqa: SLF001 - it has no seam

    def record(name: str, properties: dict[str, Any]) -> dict[str, Any]:
        metrics = properties.get("Metrics")
        if not metrics:
            return dict(plain(name, properties))
        returned = [one["Id"] for one in metrics if one.get("ReturnData", True) in (True, "true")]
        if len(returned) != 1:
            raise ValueError(f"exactly one of Metrics must have ReturnData true, not {returned}")
        single = {"MetricName": returned[0], "Namespace": "expression"}
        return dict(plain(name, {**properties, **single, "Metrics": None}))

    provisioners._cw_metric_alarm_record = record  # noqa: SLF001 - as above
