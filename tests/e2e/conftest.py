"""One engine per test session, with the real template deployed on it."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from countledger import CountLedger
from countledger.infra.deploy.deployment import Deployment
from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command, Finished
from tests.e2e.gateway import ORIGIN
from tests.e2e.world import bundle_of, client_of

Deploy: TypeAlias = Callable[..., Finished]


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """The deployed stack, its pump delivering in the background; `stack.pump.drain()` waits."""
    with LocalStack() as running:
        yield running


@pytest.fixture(scope="session")
def auth_stack() -> Iterator[LocalStack]:
    """The same with IAM enforced; `client_of(auth_stack, "EmitPolicyArn")` is an actor."""
    http = {"HttpApi": "iam", "HttpCorsOrigins": ORIGIN}
    with LocalStack(name="countledger-auth", auth=True, parameters=http) as running:
        yield running


@pytest.fixture
def client(stack: LocalStack) -> CountLedger:
    """A client of the stack that may do everything."""
    return client_of(stack)


@pytest.fixture
def root(auth_stack: LocalStack) -> CountLedger:
    """A client of the stack with IAM enforced that may do everything."""
    return client_of(auth_stack)


@pytest.fixture
def command(stack: LocalStack) -> Command:
    """The command line in the environment that a user of the stack has."""
    return Command(stack.environment())


@pytest.fixture
def name() -> str:
    """A name of one test alone: of a namespace, a stack, a rule."""
    return f"n{uuid.uuid4().hex[:10]}"


@pytest.fixture
def counter(name: str) -> str:
    """A counter that nobody has used."""
    return f"{name}:a"


@pytest.fixture
def deploy(command: Command, name: str, tmp_path: Path) -> Deploy:
    """Runs `countledger deploy --yes` for the stack of this test."""

    def run(*arguments: str, code: str = "{}", yes: bool = True) -> Finished:
        (tmp_path / "bundle.zip").write_bytes(bundle_of(code))
        common = ("deploy", "--stack-name", name, "--bundle", str(tmp_path / "bundle.zip"))
        return command(*common, *arguments, *["--yes"] * yes)

    return run


@pytest.fixture
def deployment(stack: LocalStack, name: str) -> Deployment:
    """Deploys templates of other releases as the stack of this test."""
    stack.client("s3").create_bucket(Bucket=name)
    return stack.home.deployment(name)
