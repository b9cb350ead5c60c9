"""`countledger doctor`: what it finds with the credentials and the environment of an app."""

import pytest

from countledger import Settings
from countledger.infra.doctor import CheckResult, doctor_of
from countledger.infra.local.stack import Credentials, LocalStack, session_of
from countledger.ledger.connection import Connection
from countledger.ledger.limits import HOUR_MS
from tests.e2e.command import Command, Finished
from tests.e2e.world import PastClock


def results(done: Finished) -> dict[str, str]:
    return {one["name"]: one["result"] for one in done.items}


def test_all_is_well_and_nothing_is_written(stack: LocalStack) -> None:
    before = stack.client("dynamodb").scan(TableName=stack.outputs["LedgerTableName"])["Count"]

    done = Command(stack.environment())("doctor", "--json")

    assert done.code == 0, done.err
    assert set(results(done).values()) == {"ok"}
    assert list(results(done)) == [
        "versions",
        "credentials",
        "clock",
        "stack",
        "record",
        "read totals",
        "read entries",
    ]
    after = stack.client("dynamodb").scan(TableName=stack.outputs["LedgerTableName"])["Count"]
    assert after == before


def test_each_policy_permits_its_own(auth_stack: LocalStack) -> None:
    found = {
        policy: results(
            Command(auth_stack.environment(auth_stack.credentials_for(policy)))("doctor", "--json")
        )
        for policy in ("EmitPolicyArn", "ReadPolicyArn")
    }

    assert found["EmitPolicyArn"]["record"] == "ok"
    assert found["EmitPolicyArn"]["read totals"] == found["EmitPolicyArn"]["read entries"]
    assert found["EmitPolicyArn"]["read totals"] == "denied"
    assert found["ReadPolicyArn"]["record"] == "denied"
    assert found["ReadPolicyArn"]["read totals"] == found["ReadPolicyArn"]["read entries"] == "ok"


def test_what_is_denied_is_no_problem_and_says_what_permits_it(auth_stack: LocalStack) -> None:
    keys = auth_stack.credentials_for("EmitPolicyArn")

    done = Command(auth_stack.environment(keys))("doctor")

    assert done.code == 0
    assert "attach the policy ReadPolicyArn" in done.err


def test_without_any_permission_it_says_how_to_find_the_tables(auth_stack: LocalStack) -> None:
    done = Command(auth_stack.environment(auth_stack.credentials_for()))("doctor")

    assert done.code == 1
    assert "stack: attach the policy of the stack for what this app does" in done.err
    assert "COUNTLEDGER_LEDGER_TABLE" in done.err


def test_a_clock_is_checked_also_where_the_credentials_are_refused(auth_stack: LocalStack) -> None:
    """A signature of another time is refused, so a wrong clock looks like wrong credentials."""
    session = session_of(Credentials(auth_stack.credentials_for().access_key, "wrong"))
    settings = Settings(stack_name=auth_stack.name)
    connection = Connection.open(settings, session=session, endpoint_url=auth_stack.url)

    found = list(doctor_of(connection, clock=PastClock(2 * HOUR_MS)).checks())

    wrong = {one.name: one for one in found if one.result is CheckResult.PROBLEM}
    assert set(wrong) == {"credentials", "clock"}
    assert "SignatureDoesNotMatch" in wrong["credentials"].says
    assert wrong["clock"].says.startswith("about 2 h behind the service's")
    assert "set the clock of this machine" in wrong["clock"].do


def test_a_stack_that_is_not_there(stack: LocalStack) -> None:
    done = Command(stack.environment())("doctor", "--json", "--stack-name", "nobodys")

    assert done.code == 1
    assert done.items[-1]["name"] == "stack"
    assert done.items[-1]["result"] == "problem"
    assert "no stack 'nobodys'" in done.items[-1]["says"]


def test_table_variables_of_a_table_that_is_not_there(stack: LocalStack) -> None:
    names = {"COUNTLEDGER_LEDGER_TABLE": "gone", "COUNTLEDGER_COUNTERS_TABLE": "gone-too"}

    done = Command({**stack.environment(), **names})("doctor", "--json")

    assert done.code == 1
    assert "named by variables" in done.items[3]["says"]
    assert [one["result"] for one in done.items[4:]] == ["problem"] * 3


def test_a_local_stack_that_has_ended_is_not_called(stack: LocalStack) -> None:
    done = Command(stack.environment())("doctor", env={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})

    assert (done.code, done.out) == (2, "")
    assert "has ended" in done.err


@pytest.mark.parametrize(
    ("environment", "problem", "advice"),
    [
        (
            {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
            "credentials",
            "set AWS_PROFILE",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_SECRET_ACCESS_KEY": "of another"},
            "endpoint",
            "has ended",
        ),
    ],
    ids=["no credentials", "a way that leads nowhere"],
)
def test_nothing_else_is_tried_where_nobody_answers(
    stack: LocalStack, environment: dict[str, str | None], problem: str, advice: str
) -> None:
    done = Command(stack.environment())("doctor", "--json", env=environment)

    assert done.code == 1
    assert results(done) == {"versions": "ok", problem: "problem"}
    assert advice in done.items[-1]["says"] + done.items[-1]["do"]


def test_a_name_that_no_counter_has(stack: LocalStack) -> None:
    done = Command(stack.environment())("doctor", "--counter", "a#b")

    assert done.code == 2
    assert "a#b" in done.err
