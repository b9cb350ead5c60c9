"""`countledger status`: how the stack is, and which action is required."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger import CountLedger
from countledger.infra.cli.engine import document_of, engine_is_installed
from countledger.infra.cli.options import Options, shared
from countledger.infra.cli.output import notice, show, show_json
from countledger.infra.cli.status_view import document, show_facts
from countledger.infra.status.findings import findings
from countledger.infra.status.gathering import Gathering
from countledger.ledger.errors import BadSetting, StackNotFound, Unreachable
from countledger.ledger.settings import Settings

if TYPE_CHECKING:
    from countledger.infra.background import Running

FINDINGS: Final = 1
# A shell outlives the stack that `up` pointed it at.
_ENDED: Final = (
    'what AWS_ENDPOINT_URL names on this machine has ended: `eval "$(countledger up)"` starts '
    "another, `unset AWS_ENDPOINT_URL` leads to AWS again"
)


@shared
def status(options: Options) -> int:
    """Tell how the stack is: what runs, how far it is, and where action is required.

    The stack itself, its event source mappings, how far the totals are behind, queues and their
    oldest messages, alarms, and the schedules of compaction with what is due and what their last
    run came to. Each finding says what to do.

    A stack of this machine (countledger up) of that name is taken before one in an account; name
    a profile, a region or an endpoint for the latter. Ages that CloudWatch measures are shown to
    those who may read metrics.

    Examples:
      countledger status
      countledger status --stack-name shop --region eu-west-1
      countledger status --json                     [dim]findings and facts, for a script[/dim]

    Exit code 1: action is required, or there is no such stack.
    """
    name = options.settings.stack_name
    running = _running_here(options, name)
    client = options.client() if running is None else _client_of(running)
    try:
        _ = client.connection.region
    except BadSetting as error:  # nothing of AWS is configured: a stack of this machine was meant
        return _nothing(options, name, str(error))
    try:
        facts = Gathering(client).facts()
    except StackNotFound as error:
        return _nothing(options, name, str(error))
    except Unreachable:
        if not client.connection.stays_here:
            raise
        return _nothing(options, name, _ENDED)
    found = findings(facts)
    if options.json:
        here = {"stack_name": name, "running": True} if running is None else document_of(running)
        show_json({**here, **document(facts, found)})
    else:
        show_facts(facts, found, running)
    return FINDINGS if found else 0


def _nothing(options: Options, name: str, reason: str) -> int:
    show(options, [{"stack": name, "running": False}], {"stack_name": name, "running": False})
    notice(reason)
    return FINDINGS


def _running_here(options: Options, name: str) -> Running | None:
    """The stack of this machine, unless the options ask for another place."""
    elsewhere = options.profile or options.region or options.endpoint_url
    if elsewhere or not engine_is_installed():
        return None
    from countledger.infra import background  # noqa: PLC0415 - what it imports is an extra

    return background.status(name)


def _client_of(running: Running) -> CountLedger:
    """A client of it, whatever the environment says of another stack."""
    from countledger.infra.local_stack import session_of  # noqa: PLC0415 - an extra

    settings = Settings.of_stack(running.stack_name)
    return CountLedger(settings, session=session_of(), endpoint_url=running.url)
