"""`countledger sequence`: numbers that are given out once."""

from countledger.infra.calls.sequences import SEQUENCES
from countledger.infra.cli.calls import commands_of

app = commands_of(SEQUENCES)
