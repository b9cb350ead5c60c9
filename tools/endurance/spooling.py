"""A process that records events through a spool, and says how many are acknowledged.

It is killed while it runs; with no events it sends what an earlier process left in the spool.
"""

import sys
from time import sleep
from typing import Final

from countledger import Buffering, CountLedger, Event
from tools.endurance.world import deltas

_PAUSE_S: Final = 0.02


def main(namespace: str, spool: str, events: int, counters: int) -> None:
    """Spool all events, write `all`, then the number of acknowledged entries until none waits."""
    with CountLedger().buffered(Buffering(spool=spool, max_entries=max(events, 25))) as producer:
        producer.add_many(
            Event(f"{namespace}:{number}", delta) for number, delta in deltas(events, counters)
        )
        _say("all")
        while producer.statistics.waiting:
            _say(str(producer.statistics.recorded))
            sleep(_PAUSE_S)
        producer.flush()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
