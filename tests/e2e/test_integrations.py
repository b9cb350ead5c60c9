"""The examples for web frameworks, functions and task queues run as the document shows them."""

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from countledger import CountLedger
from countledger.infra.local.stack import LocalStack

_GUIDE: Final = Path(__file__).parents[2] / "docs" / "integrations.md"
_EXAMPLE: Final = re.compile(r"<!-- integration: (\S+) -->\n\n```python\n(.*?)```", re.DOTALL)
_MOST_LINES: Final = 60
_PATIENCE_S: Final = 30


def examples() -> dict[str, str]:
    """The code of each example by its file."""
    return dict(_EXAMPLE.findall(_GUIDE.read_text()))


class Examples:
    """The examples as modules that can be imported."""

    def __init__(self, folder: Path) -> None:
        for name, code in examples().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
            for package in [path.parent, *path.parent.parents]:
                if folder in package.parents:
                    (package / "__init__.py").touch()

    def load(self, name: str) -> ModuleType:
        return import_module(name)


@pytest.fixture
def written(
    tmp_path: Path, stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Examples]:
    """The examples in a folder of their own, in the environment of the stack."""
    for variable, value in stack.environment().items():
        monkeypatch.setenv(variable, value)
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield Examples(tmp_path)
    for name in {name for name in sys.modules if name not in known}:
        path = getattr(sys.modules[name], "__file__", None)
        if path and tmp_path in Path(path).parents:
            del sys.modules[name]


def test_each_example_fits_a_page() -> None:
    found = examples()

    assert len(found) == 6
    assert {
        name: code.count("\n") for name, code in found.items() if code.count("\n") > _MOST_LINES
    } == {}


def test_calls_of_a_function_are_counted(written: Examples, client: CountLedger) -> None:
    before = client.exact("calls:checkout").value
    module = written.load("decorated")

    assert module.checkout({"book": 12, "pen": 3}) == 15
    confirmed = [asyncio.run(module.confirm("o-1", "north")) for _ in range(2)]

    assert confirmed == ["o-1 confirmed"] * 2
    assert client.exact("calls:checkout").value == before + 1
    assert client.exact("orders:north").value == 1


def test_fastapi_counts_a_repeated_request_once(
    written: Examples, client: CountLedger, name: str
) -> None:
    testclient = import_module("fastapi.testclient")

    with testclient.TestClient(written.load("api").app) as http:
        likes = [
            http.post(f"/posts/{name}/likes", headers={"Idempotency-Key": "click-1"}).json()
            for _ in range(2)
        ]
        assert http.get(f"/posts/{name}").status_code == 200

    assert likes == [{"status": "recorded"}, {"status": "duplicate"}]
    assert client.exact(f"likes:{name}").value == 1
    assert client.exact(f"views:{name}").value == 1


def test_django_counts_what_is_committed(
    written: Examples,
    stack: LocalStack,
    client: CountLedger,
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    django, conf = import_module("django"), import_module("django.conf")
    conf.settings.configure(
        INSTALLED_APPS=["counters"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        COUNTLEDGER={"stack_name": stack.name},
    )
    counters = written.load("counters.apps")
    django.setup()
    transaction = import_module("django.db.transaction")

    with transaction.atomic():
        counters.record_on_commit(f"{name}:2026", 1, key="order-1")
        assert client.exact(f"{name}:2026").value == 0
    with transaction.atomic():
        counters.record_on_commit(f"{name}:2026", 1, key="order-2")
        transaction.set_rollback(True)

    stack.pump.drain()
    import_module("django.core.management").call_command("total", f"{name}:2026")
    assert capsys.readouterr().out == f"{name}:2026 1\n"


def test_a_function_counts_a_message_that_is_delivered_again_once(
    written: Examples, client: CountLedger, name: str
) -> None:
    module = written.load("function")
    event = {"Records": [_message(f"m-{number}", {"shop": name}) for number in range(3)]}
    broken = {"Records": [_message("m-4", {"shop": name}), _message("m-5", {})]}

    answers = [module.handler(event, None) for _ in range(2)]
    answers.append(module.handler(broken, None))

    assert answers[:2] == [{"batchItemFailures": []}] * 2
    assert answers[2] == {"batchItemFailures": [{"itemIdentifier": "m-5"}]}
    assert client.exact(f"orders:{name}").value == 4


def _message(message_id: str, body: dict[str, str]) -> dict[str, Any]:
    return {
        "messageId": message_id,
        "receiptHandle": "r",
        "body": json.dumps(body),
        "attributes": {},
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:orders",
        "awsRegion": "us-east-1",
    }


class _Carrier:
    """Refuses its first order."""

    def __init__(self) -> None:
        self.tries = 0

    def announce(self, _order: str) -> None:
        self.tries += 1
        if self.tries == 1:
            raise ConnectionError("try again")


def test_celery_counts_a_task_that_is_retried_once(written: Examples, client: CountLedger) -> None:
    worker = import_module("celery.contrib.testing.worker")
    module: Any = written.load("tasks")
    carrier = _Carrier()
    module.carrier_of = lambda _: carrier
    module.app.conf.update(broker_url="memory://", result_backend="cache+memory://")
    before = client.exact("orders:shipped").value

    with worker.start_worker(module.app, pool="solo", perform_ping_check=False):
        result = module.ship.delay("o-1", "north")
        until = time.monotonic() + _PATIENCE_S
        while not result.ready() and time.monotonic() < until:
            time.sleep(0.05)

    assert result.successful()
    assert carrier.tries == 2
    assert client.exact("orders:shipped").value == before + 1
