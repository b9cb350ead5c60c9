"""One engine per test session, with the real template deployed on it."""

import uuid
from collections.abc import Iterator

import pytest

from countledger import CountLedger
from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command
from tests.e2e.world import client_of


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """The deployed stack, its pump delivering in the background; `stack.pump.drain()` waits."""
    with LocalStack() as running:
        yield running


@pytest.fixture(scope="session")
def auth_stack() -> Iterator[LocalStack]:
    """The same with IAM enforced; `client_of(auth_stack, "EmitPolicyArn")` is an actor."""
    with LocalStack(name="countledger-auth", auth=True) as running:
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
