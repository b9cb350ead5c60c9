"""One engine per test session, with the real template deployed on it."""

from collections.abc import Iterator

import pytest

from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """The deployed stack, its pump delivering in the background; `stack.pump.drain()` waits."""
    with LocalStack() as running:
        yield running


@pytest.fixture(scope="session")
def auth_stack() -> Iterator[LocalStack]:
    """The same with IAM enforced; `credentials_for("EmitPolicyArn")` makes an actor."""
    with LocalStack(name="countledger-auth", auth=True) as running:
        yield running


@pytest.fixture
def command(stack: LocalStack) -> Command:
    """The command line in the environment that a user of the stack has."""
    return Command(stack.environment())
