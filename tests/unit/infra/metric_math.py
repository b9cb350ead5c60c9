"""Evaluates the alarms of the template over series of data, as CloudWatch documents it.

Only what our alarms use: FILL, IF, SUM, METRICS, AND, OR, comparisons, sums and products. A series
is a list with a value, or None for missing data, for each period. An operation on missing data is
missing; SUM of several series takes those that have data.

Not modelled: how late data arrives, and the longer range of data that CloudWatch evaluates when
data is missing. FILL leaves nothing missing, so our expressions do not meet that.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

Series: TypeAlias = "list[float | None]"
Value: TypeAlias = "float | Series | list[Series]"

_OPERATORS: Final[Mapping[type, Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.And: lambda one, other: one != 0 and other != 0,
    ast.Or: lambda one, other: one != 0 or other != 0,
}
_THRESHOLDS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
}


def evaluated(expression: str, metrics: Mapping[str, Series]) -> Series:
    """The series of an expression over metrics by their ids, all of one length."""
    (length,) = {len(series) for series in metrics.values()}
    text = re.sub(r"\b(AND|OR)\b", lambda found: found[1].lower(), " ".join(expression.split()))
    value = _value(ast.parse(text, mode="eval").body, metrics)
    return _series(value, length)


def _series(value: Value, length: int) -> Series:
    if isinstance(value, float):
        return [value] * length
    assert not value or not isinstance(value[0], list), "an expression returns one series"
    return value  # type: ignore[return-value]


def _value(node: ast.expr, metrics: Mapping[str, Series]) -> Value:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return metrics[name]
        case ast.BinOp(left=left, op=symbol, right=right):
            return _both(type(symbol), _value(left, metrics), _value(right, metrics))
        case ast.Compare(left=left, ops=[symbol], comparators=[right]):
            return _both(type(symbol), _value(left, metrics), _value(right, metrics))
        case ast.BoolOp(op=symbol, values=[first, *others]):
            value = _value(first, metrics)
            for other in others:
                value = _both(type(symbol), value, _value(other, metrics))
            return value
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _called(name, [_value(one, metrics) for one in arguments], metrics)
    raise AssertionError(f"the evaluator does not know {ast.unparse(node)}")


def _called(name: str, arguments: Sequence[Any], metrics: Mapping[str, Series]) -> Value:
    match name, arguments:
        case "METRICS", []:
            return list(metrics.values())
        case "FILL", [[[*_], *_] as many, float() as default]:
            return [_filled(one, default) for one in many]
        case "FILL", [list() as series, float() as default]:
            return _filled(series, default)
        case "SUM", [[[*_], *_] as many]:
            return [
                sum(found) if (found := [x for x in at if x is not None]) else None
                for at in zip(*many, strict=True)
            ]
        case "IF", [list() as condition, float() as then, float() as otherwise]:
            return [None if one is None else then if one else otherwise for one in condition]
    raise AssertionError(f"the evaluator does not know {name} of {arguments}")


def _filled(series: Series, default: float) -> Series:
    return [default if one is None else one for one in series]


def _both(symbol: type, one: Value, other: Value) -> Value:
    act = _OPERATORS[symbol]
    if isinstance(one, float) and isinstance(other, float):
        return float(act(one, other))
    length = len(one if isinstance(one, list) else other)  # type: ignore[arg-type]
    pairs = zip(_series(one, length), _series(other, length), strict=True)
    return [None if x is None or y is None else float(act(x, y)) for x, y in pairs]


def state_of(alarm: Mapping[str, Any], metrics: Mapping[str, Series]) -> str:
    """ALARM or OK, at the end of the series, of an alarm of the template (its properties).

    Args:
        alarm: with `Metrics` (an expression and its metrics), or with one `MetricName`.
        metrics: the data by the metric's id; of a simple alarm by `MetricName`.
    """
    if "MetricName" in alarm:
        series = list(metrics[alarm["MetricName"]])
    else:
        (returned,) = [one for one in listed(alarm) if one["ReturnData"]]
        series = evaluated(returned["Expression"], metrics)
    over = _THRESHOLDS[alarm["ComparisonOperator"]]
    missing = {"breaching": True, "notBreaching": False}[alarm["TreatMissingData"]]
    last = series[-alarm["EvaluationPeriods"] :]
    assert len(last) == alarm["EvaluationPeriods"], "give as many periods as the alarm looks at"
    breaching = [missing if one is None else over(one, alarm["Threshold"]) for one in last]
    needed = alarm.get("DatapointsToAlarm", alarm["EvaluationPeriods"])
    return "ALARM" if sum(breaching) >= needed else "OK"


def listed(alarm: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The metrics and the expression of an alarm, those on a condition included."""
    return [one["Fn::If"][1] if "Fn::If" in one else one for one in alarm["Metrics"]]
