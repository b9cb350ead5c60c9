"""`countledger claim`: values that at most one owner has."""

from countledger.infra.calls.claims import CLAIMS
from countledger.infra.cli.calls import commands_of

app = commands_of(CLAIMS)
