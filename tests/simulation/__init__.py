"""The whole system in a simulated world, from one seed: all of our own code, all that can go wrong.

    schedule      one actor runs at a time; virtual time, and who goes on when
    table         items, conditions, pages that are no snapshot
    transactions  all or nothing, item by item; client request tokens
    replication   between regions: late, in any order, the last writer wins
    stream        shards that split and are trimmed
    mapping       the event source mapping: batches, windows, duplicates, zombies
    queue         messages, and the schedules that start things
    faults        what happens to calls, by rates that each seed draws anew
    mailbox       queues that people read: dead letters, the notices of the quarantine
    targets       where alerts go: a bus and a topic that fail, are slow, take twice
    evaluating       the evaluator's function, and the alerts of a process
    dynamo          the product's dynamo to such a world
    process       the product's own objects as one process has them
    operations    what clients do: a table to which new operations are added
    auditor       an account of its own, checked at every write; what must hold once all is quiet
    simulation    one seed: its shape, its actors, its quiet end
    region_accidents  regions that join, leave, are promoted and are lost
    window_account  which seeds have windows, and a recount of each
    alert_account what must alert: every move, every rule, and a walk through the totals
    canary        how a rule is switched off, and how that is noticed
    canaries      known wrong variants, each of which must be caught

`python -m tests.simulation SEED` replays one; `make simulate SEEDS=1000` runs many.
"""
