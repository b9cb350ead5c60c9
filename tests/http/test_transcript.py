"""Each described call as a request and as a command: what they do and answer is the same."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from httpx2 import Response

from countledger.infra.calls.call import Op, Parameter
from countledger.infra.cli.app import Options, run
from countledger.ledger.operations import Assign, Update
from tests.http.samples import SAMPLES, Sample
from tests.http.world import Api, memory_api
from tools.guide.http import described_domains

# What differs between two stacks on which the same happened.
_OWN: Final = re.compile(r"(?:^|_)(?:id|ticket|version|revision|at|from|key|hold)$")


# Its namespace is not ranked; and to switch a ranking off is a command of another name.
_NOT_COMPARED: Final = {"namespace_top", "rank_group"}
_OPS: Final = {
    op.function.__name__: (f"{domain.name} {op.name}", op)
    for domain in described_domains()
    for op in domain.ops
    if op.path and op.command
}


def _given(op: Op, sample: Sample, kept: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of a request, by their names."""
    method, path, headers, body = sample.request_with(kept)
    parts = urlsplit(path)
    found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", op.path), parts.path)
    assert method == op.verb
    assert found is not None
    query: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query):
        query.setdefault(name, []).append(value)
    many = {one.name for one in op.parameters if one.kind in {list, tuple}}
    flat = {name: values if name in many else values[0] for name, values in query.items()}
    key = {"key": headers["Idempotency-Key"]} if headers else {}
    named = {name: unquote(value) for name, value in found.groupdict().items()}
    return {**named, **flat, **(body or {}), **key}


def _words(one: Parameter, value: Any) -> list[str]:  # noqa: ANN401 - of JSON
    """A parameter as it is typed."""
    if isinstance(value, bool):
        return [f"--{one.name.replace('_', '-')}"] if value else []
    if isinstance(value, list):
        values = [f"{v['counter']}={v['delta']}" if isinstance(v, dict) else v for v in value]
    elif one.name.endswith("_ms"):
        values = [f"{value}ms"]
    else:
        values = ["none" if value is None else str(value)]
    if one.positional:
        return values
    option = one.param.option or f"--{one.name.replace('_', '-')}"
    return [word for each in values for word in (option, each)]


def _plain(value: Any, name: str = "") -> Any:  # noqa: ANN401 - of JSON
    if isinstance(value, dict):
        return {key: _plain(part, key) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part, name) for part in value]
    return "*" if value is not None and _OWN.search(name) else value


@pytest.fixture
def other() -> Iterator[Api]:
    with memory_api() as api:
        yield api


def test_a_command_does_and_answers_what_its_request_does(
    api: Api, other: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order, since one makes what another reads: requests and commands on a stack each."""
    client = other.app.state.clients.make()
    monkeypatch.setattr(Options, "client", lambda _: client)
    kept: tuple[dict[str, str], dict[str, str]] = ({}, {})
    compared = set()
    for sample in SAMPLES:
        answer = _requested(api, sample, kept[0])
        if (line := _line(sample, kept[1])) is None:
            _requested(other, sample, kept[1])
            continue
        code = run(line)
        printed = capsys.readouterr()
        assert (code < 2) == (answer.status_code < 400), (sample, printed)
        if code >= 2:
            continue
        document = json.loads(printed.out)
        if answer.status_code != 204:
            assert _plain(document) == _plain(answer.json()), sample
        compared.add(sample.operation)
        if sample.keeps is not None:
            name, field = sample.keeps
            kept[0][name], kept[1][name] = answer.json()[field], document[field]

    assert set(_OPS) - compared == _NOT_COMPARED


def test_a_number_among_the_parts_of_a_claim_stays_in_its_place(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only an amount is moved after the options: another order of parts is another claim."""
    client = api.app.state.clients.make()
    monkeypatch.setattr(Options, "client", lambda _: client)

    assert run(["claim", "take", "seat", "--owner", "o-1", "--json", "--", "-5", "row-3"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == ["-5", "row-3"]
    assert run(["claim", "take", "seat", "-6", "row-3", "--owner", "o-1", "--json"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_a_negative_amount_is_never_taken_for_an_option(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal is that of the library, which says what an amount may be."""
    client = api.app.state.clients.make()
    monkeypatch.setattr(Options, "client", lambda _: client)

    assert run(["quota", "set", "llm:", "-5", "--json"]) == 2
    assert "limit -5 must be 0 or more" in capsys.readouterr().err


def test_an_amount_that_is_refused_is_called_an_amount(api: Api) -> None:
    """What is acquired is no limit."""
    answer = api.post("/v1/usage/llm:ann/acquisitions", {"amount": "0.0000000001"}, "k1")

    assert answer.json()["detail"].startswith("body/amount: amount 1E-10 has more than")


@pytest.mark.parametrize("what", ["quota", "limit of a counter"])
def test_what_cannot_be_read_of_the_quotas_is_named_beside_the_others(
    other: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """As in every list: one that is corrupt hides no other one."""
    client = other.app.state.clients.make()
    monkeypatch.setattr(Options, "client", lambda _: client)
    client.quotas.create("ads:", limit=1, per="day")
    quota = client.quotas.create("bots:", limit=2, per="day")
    client.quotas.override("bots:a", 3)
    own = what != "quota"
    pair = (f"quota#{quota.incarnation}", "bots:a") if own else ("quota#", "bots:#day")
    table = other.store.counters
    key = dict(zip(("counter", "part"), pair, strict=True))
    other.store.connection.retrying.update(Update(table, key, (Assign("limit", "odd"),)))

    answer = other.get("/v1/quotas")
    code = run(["quota", "list", "--json"])

    shown = json.loads(capsys.readouterr().out)
    assert (answer.status_code, code) == (200, 1)
    assert answer.json() == shown
    assert [one["prefix"] for one in shown["items"]] == ["ads:", "bots:"][: 1 + own]
    assert [(one["pk"], one["sk"]) for one in shown["unreadable"]] == [pair]


def _requested(api: Api, sample: Sample, kept: Mapping[str, str]) -> Response:
    method, path, headers, body = sample.request_with(kept)
    return api.http.request(method, path, headers=headers, json=body)


def _line(sample: Sample, kept: Mapping[str, str]) -> list[str] | None:
    """The command that does what a request does; None: no command does."""
    if sample.operation not in _OPS:
        return None
    spelling, op = _OPS[sample.operation]
    given = _given(op, sample, kept)
    typed = [(one, given[one.name]) for one in op.parameters if one.name in given]
    if not all(one.is_of("command") for one, _ in typed):
        return None
    words = [word for one, value in typed for word in _words(one, value)]
    return [*spelling.split(), *words, "--json", *(["--yes"] if op.confirm else [])]
