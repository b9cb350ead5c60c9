"""Starts the engines of the contract suite, each for a `with` block."""

import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import Final

import boto3
import botocore.session
import pytest
from botocore.config import Config
from moto import mock_aws
from moto.core.config import DefaultConfig

from countledger.infra.local.engine import ROOT_SECRET
from countledger.infra.local.engine import Engine as MiniStack
from tests.engines.binaries import DYNOXIDE_VARIABLE, dynoxide_binary
from tests.engines.differences import DYNOXIDE, MINISTACK, MOTO, Engine, declared

REGION: Final = "us-east-1"
ENDPOINT_VARIABLE: Final = "COUNTLEDGER_TEST_ENDPOINT"
DIFFERENCES_VARIABLE: Final = "COUNTLEDGER_TEST_DIFFERENCES"
_LEAVE_THE_ENVIRONMENT: Final[DefaultConfig] = {
    "core": {"mock_credentials": False, "reset_boto3_session": False}
}
NAMED: Final = "endpoint"
_READY_TIMEOUT_S: Final = 10.0
_CONNECT_TIMEOUT_S: Final = 5
_READ_TIMEOUT_S: Final = 20
# Neither the user's profile nor their files decide what a local engine sees.
_NOT_THE_USERS: Final = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}


def local_session(*, validate_parameters: bool = True, region: str = REGION) -> boto3.Session:
    """A session for an engine on this machine, apart from the user's own AWS."""
    core = botocore.session.Session(_NOT_THE_USERS)
    # A proxy of the user's network has no way to our loopback.
    core.set_default_client_config(Config(proxies={}, parameter_validation=validate_parameters))
    return boto3.Session(
        aws_access_key_id="000000000000",
        aws_secret_access_key=ROOT_SECRET,
        region_name=region,
        botocore_session=core,
    )


@contextmanager
def moto() -> Iterator[Engine]:
    """moto, in this process; it answers in place of AWS for as long as the block runs."""
    with mock_aws(config=_LEAVE_THE_ENVIRONMENT):
        yield Engine("moto", local_session(), None, MOTO)


@contextmanager
def ministack() -> Iterator[Engine]:
    """MiniStack, the embedded engine, in a process of its own."""
    with MiniStack() as running:
        yield Engine("ministack", local_session(), running.url, MINISTACK)


@contextmanager
def dynoxide() -> Iterator[Engine]:
    """dynoxide, in a process of its own; the test is skipped where it is not installed."""
    binary = dynoxide_binary()
    if not binary.is_file():
        pytest.skip(
            f"dynoxide is not installed: `make dynoxide`, or name it in {DYNOXIDE_VARIABLE}"
        )
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [str(binary), "serve", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(url, process)
        # Its shard ids are shorter than the service's, and botocore would refuse to send them.
        yield Engine("dynoxide", local_session(validate_parameters=False), url, DYNOXIDE)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def named_endpoint() -> Iterator[Engine]:
    """The endpoint that the environment names (`aws`: AWS itself), with its usual AWS settings.

    Credentials, region and CA (`AWS_CA_BUNDLE`) are those of the environment; nothing prints them.
    """
    url = os.environ[ENDPOINT_VARIABLE]
    core = botocore.session.Session()
    core.set_default_client_config(
        Config(connect_timeout=_CONNECT_TIMEOUT_S, read_timeout=_READ_TIMEOUT_S)
    )
    session = boto3.Session(region_name=os.environ.get("AWS_REGION"), botocore_session=core)
    differences = declared(os.environ.get(DIFFERENCES_VARIABLE, ""))
    yield Engine(NAMED, session, None if url == "aws" else url, differences)


def _wait_until_it_answers(url: str, process: "subprocess.Popen[bytes]") -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = monotonic() + _READY_TIMEOUT_S
    while True:
        try:
            opener.open(url, timeout=1).close()
        except urllib.error.HTTPError as answered:
            answered.close()
        except OSError:
            if process.poll() is None and monotonic() < deadline:
                continue
            raise
        return


STARTERS: Final[dict[str, Callable[[], AbstractContextManager[Engine]]]] = {
    "moto": moto,
    "ministack": ministack,
    "dynoxide": dynoxide,
}
# A run against an endpoint is a run against nothing else.
ENGINES: Final = {NAMED: named_endpoint} if os.environ.get(ENDPOINT_VARIABLE) else STARTERS
