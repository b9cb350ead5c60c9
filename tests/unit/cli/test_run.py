"""The command line's promises that need no AWS: one line, an exit code, nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from countledger.infra.cli import app as module
from countledger.infra.cli.app import COMMANDS, run
from countledger.ledger.errors import Unreachable
from tests.unit.demo.repositories import Repository

# Commands whose help has no example: there is nothing to get wrong.
_PLAIN = {"down", "list", "show", "delete", "unrank"}
_TAUGHT = {"quarantine list", "quarantine show", "group list", "group show", "claim show", "delete"}
_TAUGHT |= {"strict delete", "region list", "windows show"}


def _paths() -> list[str]:
    """Every command and every command of a group."""
    loaded = {name: one.load(name) for name, one in COMMANDS.items()}
    groups = [(name, sub) for name, one in loaded.items() for sub in getattr(one, "commands", ())]
    return [*loaded, *(f"{name} {sub}" for name, sub in groups)]


STRICT = ["strict", "create", "tickets:hall"]
RULE = ["alert", "create", "r", "--counter", "a", "--direction", "rising"]


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No AWS: a call that reaches for it fails."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "COUNTLEDGER_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["emit", "", "5"], "counter name is empty"),
        (["emit", "a#b", "5"], "'#', which is reserved"),
        (["emit", "x", "0"], "delta 0 changes nothing"),
        (["emit", "x", "-0.0"], "delta -0.0 changes nothing|delta 0"),
        (["emit", "x", "-Infinity"], "delta '-Infinity' is not a decimal number"),
        (["emit", "x", "five"], "delta 'five' is not a decimal number"),
        (["emit", "x", "1", "--key", ""], "idempotency key is empty"),
        (["emit", "x", "1", "--at", "2026-01-31T12:00:00Z"], "there is no key"),
        (["emit", "x", "1", "--key", "k", "--at", "2026-01-31T12:00"], "no offset"),
        (["emit", "x", "1", "--key", "k", "--at", "soon"], "'soon' is neither"),
        (["emit", "x", "1", "--occurred-at", "soon"], "'soon' is neither"),
        (["emit", "x", "1", "--note", "novalue"], "'novalue' is not NAME=VALUE"),
        (["emit", "x", "1", "--note", "a=1", "--note", "a=2"], "'a' is given twice"),
        (["emit", "x"], "give COUNTER and DELTA"),
        (["emit", "x", "1", "--file", "f"], "with --file"),
        (["emit", "x", "1", "2"], "unexpected extra argument"),
        (["emit", "x", "-y"], "No such option: -y"),
        (["total"], "Missing argument"),
        (["total", "x", "--output", "xml"], "not one of 'table', 'json'"),
        (["total", "x", "--stack-name", ""], "COUNTLEDGER_STACK_NAME is ''"),
        (["total", "x"], "no AWS region"),
        (["total", "x"], 'eval "$(countledger up)"'),
        (["total", "x", "--profile", "no-such"], "no-such"),
        (["entries", "x", "--limit", "0"], "greater than or equal to 1"),
        (["verify"], "give counters, or --all"),
        (["verify", "x", "--all"], "give counters, or --all"),
        (["namespace", "create", "n", "--horizon", "24"], "duration '24'"),
        (["namespace", "create", "n", "--kind", "odd"], "'odd' is not one of"),
        (["namespace", "set", "n"], "nothing to change of namespace 'n'"),
        (["namespace", "set", "n", "--kind", "strict"], "the kind of namespace 'n' is fixed"),
        (["compact"], "give counters, --due, or --namespace"),
        (["compact", "x", "--due"], "give counters, --due, or --namespace"),
        ([*RULE, "--threshold", "many"], "threshold 'many' is not a decimal number"),
        ([*RULE, "--threshold", "5", "--to", "topic", "here"], "'here' is not the ARN"),
        ([*RULE, "--threshold", "5", "--prefix", "a"], "needs either a counter or a prefix"),
        (["alert", "create", "r", "--prefix", ""], "--all"),
        (["alert", "set", "r"], "nothing to change"),
        (["alert", "log", "--limit", "0"], "'--limit'"),
        (["watch"], "name counters to watch"),
        (["watch", "a", "--prefix", "b"], "name counters to watch"),
        (["watch", "a", "--every", "1ms"], "200ms or more"),
        (["watch", "a", "--for", "long"], "duration 'long'"),
        (["schedule", "create"], "Missing argument"),
        (["schedule", "create", "n", "--every", "15"], "duration '15'"),
        (["schedule", "create", "n", "--every", "1h", "--min-age", "old"], "duration 'old'"),
        (["schedule", "create", "n", "--every", "1h", "--retire", "burn"], "'burn' is not one of"),
        (["schedule", "set", "n"], "nothing to change of the schedule of 'n'"),
        (["schedule", "apply", "/no/such.toml"], "/no/such.toml: No such file"),
        (["up", "--stack-name", "no_name"], "stack name 'no_name'"),
        (["demo", "--via", "post"], "'post' is not one of"),
        (["demo", "--repo", "/no/such/place"], "cannot change to '/no/such/place'"),
        (STRICT, "Missing option '--method'"),
        (
            [*STRICT, "--method", "marker", "--lower", "five"],
            "lower bound 'five' is not a decimal number",
        ),
        (
            [*STRICT, "--method", "marker", "--lower", "nan"],
            "lower bound 'nan' is not a decimal number",
        ),
        (
            [*STRICT, "--method", "marker", "--opening", ""],
            "opening value '' is not a decimal number",
        ),
        (
            [*STRICT, "--method", "marker", "--bins", "two"],
            "for '--bins': Input should be a valid integer",
        ),
        (
            [*STRICT, "--method", "marker", "--window", "24"],
            "duration '24' is not a whole number with a unit",
        ),
        (["strict", "change", "x", "two"], "delta 'two' is not a decimal number"),
        (["strict", "change", "x"], "Missing argument"),
        (["strict", "change", "x", "1", "--at", "2026-01-31T12:00:00Z"], "there is no key"),
        (["strict", "withdraw", "tickets:hall"], "Missing option '--key'"),
        (["strict", "withdraw", "tickets:hall", "--key", ""], "idempotency key is empty"),
        (["strict", "set", "tickets:hall", "--lower", "five"], "lower bound 'five' is not a"),
        (["strict", "together", "a:b"], "Missing option '--key'"),
        (["strict", "together", "a:b", "--key", "k"], "give it as COUNTER=DELTA"),
        (["set", "a:b", "much", "--key", "k"], "value 'much' is not a decimal number"),
        (["strict", "list"], "Missing argument"),
        (["strict", "sell"], "No such command 'sell'"),
        (["emti"], "Did you mean 'emit'"),
    ],
)
def test_bad_input_is_one_line_that_names_the_value_and_the_rule(
    capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    code = run(arguments)

    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert any(part in printed.err for part in reason.split("|"))


def test_a_file_that_cannot_be_read_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    assert run(["emit", "--file", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_status_of_nothing_says_how_to_get_a_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--stack-name", "none"]) == 1
    assert 'eval "$(countledger up)"' in capsys.readouterr().err


@pytest.mark.parametrize("command", _paths())
def test_every_command_teaches_by_its_help(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run([*command.split(), "--help"]) == 0

    text = capsys.readouterr().out
    for name in ("--profile", "--region", "--endpoint-url", "--stack-name", "--output", "--json"):
        assert name in text
    is_group = " " not in command and COMMANDS[command].name == "app"
    plain = is_group or (command.rsplit(maxsplit=1)[-1] in _PLAIN and command not in _TAUGHT)
    assert plain or "Examples:" in text


def test_the_command_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2

    printed = capsys.readouterr()
    assert "namespace" in printed.out + printed.err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip().replace(".", "").isalnum()


def test_an_unexpected_error_is_one_line_and_its_traceback_is_kept_for_debugging(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def broken(**_: object) -> None:
        raise RuntimeError("cogs\nand wheels")

    monkeypatch.setattr(module, "app", broken)

    assert run(["total", "x"]) == 3
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "cogs and wheels" in line
    assert "--debug" in line

    assert run(["total", "x", "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err

    monkeypatch.setenv("COUNTLEDGER_DEBUG", "1")
    assert run(["total", "x"]) == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hidden", "command", "extra"),
    [
        (["typer"], "", "cli"),
        (["rich"], "total x", "cli"),
        (["ministack"], "up", "local"),
        (["psutil", "hypercorn"], "down", "local"),
        (["hypercorn"], "serve", "serve"),
        (["psutil"], "demo --repo {repository}", "local"),
    ],
)
def test_without_an_extra_the_command_says_what_to_install(
    tmp_path: Path, hidden: list[str], command: str, extra: str
) -> None:
    made = Repository(tmp_path / "repository")
    made.commit()
    (tmp_path / "hidden.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({hidden!r}))\n"
        "from countledger.infra.cli import main\nmain()\n"
    )
    arguments = command.format(repository=made.path).split()
    done = subprocess.run(
        [sys.executable, str(tmp_path / "hidden.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"pip install 'countledger[{extra}]'" in done.stderr


def test_after_the_local_stack_has_ended_a_command_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")

    assert run(["total", "likes:post-1"]) == Unreachable.exit_code
    assert 'eval "$(countledger up)"' in capsys.readouterr().err
