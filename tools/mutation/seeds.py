"""Runs simulations, each named `focus:seed` (or `:seed`), and stops at the first that fails."""

from __future__ import annotations

import logging
import os
import sys
from time import monotonic

from tests.simulation.shrink import Failure, run
from tools.mutation.hits import TEST_VARIABLE, record


def main(names: list[str]) -> int:
    """Run them here, one after the other; 1 if one failed."""
    logging.disable(logging.WARNING)
    for name in names:
        os.environ[TEST_VARIABLE] = f"{name} (call)"
        focus, _, seed = name.rpartition(":")
        began_s = monotonic()
        failure = run(Failure(int(seed), "", focus=focus or None))
        outcome = "passed" if failure is None else "failed"
        record(f"{outcome}\t{monotonic() - began_s:.4f}\t{name}")
        if failure is not None:
            sys.stdout.write(f"FAILED simulation {name}: {failure.text}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
