"""Which transport a process uses."""

from typing import Any

import pytest
from botocore.httpsession import URLLib3Session

from countledger.infra.deploy.bundle import LOCK_PATH
from countledger.infra.template import TEMPLATE_PATH
from countledger.ledger import connection
from countledger.ledger.connection import Connection, is_fast
from countledger.ledger.errors import BadSetting, SetupError
from countledger.ledger.settings import Settings
from countledger.ledger.transport.client import FastClient
from tests.engines.running import local_session


@pytest.mark.parametrize(
    ("transport", "installed", "fast"),
    [
        (None, True, True),
        (None, False, False),
        ("", True, True),
        ("", False, False),
        ("boto3", True, False),
        ("boto3", False, False),
        ("fast", True, True),
    ],
)
def test_the_setting_decides_and_without_one_the_extra(
    transport: str | None,
    installed: bool,  # noqa: FBT001
    fast: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """boto3 is what an app has that installs no extra."""
    monkeypatch.setattr(connection, "find_spec", lambda _: object() if installed else None)

    assert is_fast(transport) == fast


def test_the_fast_transport_without_its_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the first client."""
    monkeypatch.setattr(connection, "find_spec", lambda _: None)
    opened = Connection(Settings(transport="fast"), local_session(), "http://127.0.0.1:9")
    with pytest.raises(SetupError, match=r"pip install 'countledger\[fast\]'"):
        opened.dynamo("none")


def test_it_is_the_process_that_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the stack: what names one of its settings by itself leaves this one."""
    for value in ("boto3", "fast"):
        monkeypatch.setenv("COUNTLEDGER_TRANSPORT", value)
        assert Settings.of_stack("s").transport == value


def test_the_functions_have_the_fast_transport_in_their_bundle() -> None:
    """It is what they use: nothing in the template sets another one."""
    assert "\norjson==" in LOCK_PATH.read_text()
    assert "COUNTLEDGER_TRANSPORT" not in TEMPLATE_PATH.read_text()


def test_another_transport_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable, the value and the rule."""
    monkeypatch.setenv("COUNTLEDGER_TRANSPORT", "crt")
    with pytest.raises(BadSetting, match="COUNTLEDGER_TRANSPORT is 'crt': give one of boto3, fast"):
        Settings()


@pytest.mark.parametrize("name", ["_get_connection_manager", "_proxy_config"])
def test_another_version_of_botocore_is_used_by_boto3_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast transport uses parts of it that have no public name; a setting is not ignored."""

    def gone(_: object) -> None:
        raise AttributeError(name)

    monkeypatch.setattr(URLLib3Session, name, property(gone, lambda *_: None), raising=False)
    url, session = "http://127.0.0.1:9", local_session()
    client: Any = Connection(Settings(transport=None), session, url).dynamo("none").client

    assert not isinstance(client._client.get(), FastClient)
    with pytest.raises(SetupError, match=f"does not know this version of botocore .*{name}"):
        Connection(Settings(transport="fast"), session, url).dynamo("none")
