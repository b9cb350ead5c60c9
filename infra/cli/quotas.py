"""`countledger quota`: limits for each counter and window of time."""

from countledger.infra.calls.quotas import QUOTAS
from countledger.infra.cli.calls import commands_of

app = commands_of(QUOTAS)
