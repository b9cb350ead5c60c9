"""What clients do: a table of operations, each drawn by its weight.

An operation plays once, with whatever the seed draws for it, tells the auditor what it was told,
and lets through what may go wrong: a service that fails, a process that dies. What else the product
raises is a failure of the simulation. To add one, write a function of a `Client` and put it into
`OPERATIONS`; an account of its own goes into `Auditor.watchers`, an end check into `ENDS`.
"""

from functools import partial
from typing import Final

from tests.simulation import administrator_operations as administrators
from tests.simulation import alert_operations as alerts
from tests.simulation import buffer_operations as buffer
from tests.simulation import claim_operations as claims
from tests.simulation import copy_operations as copies
from tests.simulation import deletion_operations as deletion
from tests.simulation import fork_operations as forks
from tests.simulation import hold_operations as holds
from tests.simulation import joint_operations as joint
from tests.simulation import kinesis_operations as kinesis
from tests.simulation import ledger_operations as ledger
from tests.simulation import moving_operations as moving
from tests.simulation import number_operations as numbers
from tests.simulation import quarantine_operations as malformed
from tests.simulation import quota_operations as quotas
from tests.simulation import regions_operations as regions
from tests.simulation import running_operations as running
from tests.simulation import stock_operations as stock
from tests.simulation import strict_operations as strict
from tests.simulation.operation import Operation

OPERATIONS: Final = (
    Operation("record", ledger.record_plain, 3),
    Operation("record keyed", ledger.record_keyed, 3),
    Operation("record bare key", ledger.record_bare, 2),
    Operation("record batch", ledger.record_batch, 2),
    Operation("resend", ledger.resend, 3),
    Operation("reuse a key", ledger.reuse, 1),
    Operation("exact read", ledger.read_exact, 3, reads=True),
    Operation("total read", ledger.read_total, 1, reads=True),
    Operation("compact", running.compact, 2),
    Operation("verify", running.verify, 1, reads=True),
    Operation("repair", running.repair, 2),
    Operation("schedule", running.schedule, 1, home=True),
    Operation("spoil a total", running.spoil, 0.7),
    Operation("stock record", stock.record, 1),
    Operation("stock set", stock.set_value, 1.5),
    Operation("strict atomic", strict.change_by("atomic"), 1, home=True),
    Operation("strict occ", strict.change_by("occ"), 1, home=True),
    Operation("strict history", strict.change_by("history"), 1, home=True),
    Operation("strict request_token", strict.change_by("request_token"), 1, home=True),
    Operation("strict marker", strict.change_by("marker"), 1, home=True),
    Operation("strict set", strict.change_by("set"), 1, home=True),
    Operation("strict sharded", strict.change_sharded, 2, home=True),
    Operation("strict bounds", strict.move_bounds, 0.5, home=True),
    Operation("strict give up", strict.withdraw, 1, home=True),
    Operation("strict remake", strict.remake, 0.7, home=True),
    Operation("strict tidy", strict.tidy, 0.5, home=True),
    Operation("malformed record", malformed.record, 1),
    Operation("malformed", malformed.malformed, 0.5),
    Operation("mend malformed", malformed.mend, 0.4),
    Operation("quarantine resend", malformed.resend, 0.5),
    Operation("alert create", alerts.create, 1),
    Operation("alert set", alerts.change, 1),
    Operation("alert now", alerts.scan_now, 1),
    Operation("alert delete", alerts.delete, 0.4),
    Operation("alert resend", alerts.resend, 0.5),
    Operation("buffer add", buffer.add, 3),
    Operation("buffer flush", buffer.flush, 1.5),
    Operation("buffer close", buffer.close, 0.7),
    Operation("fork", forks.fork, 0.7, home=True),
    Operation("fork draw", forks.draw, 0.7, home=True),
    Operation("copy", copies.copy_process, 2, home=True),
    Operation("async add", partial(buffer.add, form=buffer.ASYNC), 3),
    Operation("async flush", partial(buffer.flush, form=buffer.ASYNC), 1.5),
    Operation("async close", partial(buffer.close, form=buffer.ASYNC), 0.7),
    Operation("export", moving.export, 1, reads=True),
    Operation("import", moving.import_, 1.5, home=True),
    Operation("kinesis send", kinesis.send, 3, home=True),
    Operation("kinesis resend", kinesis.send_again, 1.5, home=True),
    Operation("kinesis forge", kinesis.forge, 0.5, home=True),
    Operation("kinesis junk", kinesis.send_junk, 0.3, home=True),
    Operation("ingest resend", kinesis.work_off, 1, home=True),
    Operation("sequence draw", numbers.draw, 1, home=True),
    Operation("sequence expected", numbers.draw_expected, 1, home=True),
    Operation("sequence lease", numbers.draw_leased, 0.5, home=True),
    Operation("sequence append", numbers.append, 1.5, home=True),
    Operation("sequence remake", numbers.remake, 0.5, home=True),
    Operation("claim take", claims.take, 1, home=True),
    Operation("claim change", claims.change, 0.7, home=True),
    Operation("claim release", claims.release, 0.7, home=True),
    Operation("claim look", claims.look, 0.7, home=True, reads=True),
    Operation("quota acquire", quotas.acquire, 0.6, home=True),
    Operation("quota keyed", quotas.acquire_keyed, 0.6, home=True),
    Operation("quota reserve", quotas.reserve, 0.6, home=True),
    Operation("quota resolve", quotas.resolve, 0.8, home=True),
    Operation("quota limit", quotas.limit, 0.4, home=True),
    Operation("quota remake", quotas.remake, 0.3, home=True),
    Operation("joint transfer", joint.transfer, 2, home=True),
    Operation("joint give up", joint.withdraw, 1.2, home=True),
    Operation("deletion call", deletion.delete, 3, home=True),
    Operation("deletion cancel", deletion.cancel, 0.3, home=True),
    Operation("deletion rest", deletion.rest, 1.5),
    Operation("deletion join", deletion.join, 1, home=True),
    Operation("deletion lose", deletion.lose, 1, home=True),
    Operation("deletion as found", deletion.as_found, 1, home=True),
    Operation("strict regions change", regions.change, 4),
    Operation("strict regions bounds", regions.move_bounds, 0.5),
    Operation("strict regions give up", regions.withdraw, 1.5),
    Operation("strict regions remake", regions.remake, 0.3),
    Operation("hold place", holds.place, 3, home=True),
    Operation("hold confirm", holds.confirm, 2, home=True),
    Operation("hold cancel", holds.cancel, 1, home=True),
    Operation("hold sale", holds.sell, 1.5, home=True),
    Operation("open holds delete", holds.delete, 1.5, home=True),
    Operation("late schedules remake", running.remake_schedule, 3, home=True),
    Operation("administrator value", administrators.set_value, 2, home=True),
    Operation("administrator bounds", administrators.move_bounds, 2, home=True),
    Operation("administrator remake", administrators.remake, 0.7, home=True),
    Operation("administrator sale", administrators.sell, 3, home=True),
)

# What a process does before it ends by itself.
CLOSE: Final = tuple(one for one in OPERATIONS if one.name in {"buffer close", "async close"})
