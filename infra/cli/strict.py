"""`countledger strict`: counters that never pass their bounds; and `countledger set`."""

from countledger.infra.calls.holds import HOLDS
from countledger.infra.calls.strict import SET_VALUE, STRICT
from countledger.infra.cli.calls import command_of, commands_of

app = commands_of(STRICT, HOLDS)
set_value = command_of(SET_VALUE)
