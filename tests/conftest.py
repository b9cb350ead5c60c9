"""What every run of the suite says of itself, and what holds for every test."""

import signal

from hypothesis import settings

from tests.engines.binaries import dynoxide_binary


def pytest_report_header() -> str:
    """Which engines the contract suite runs on."""
    extra = "dynoxide" if dynoxide_binary().is_file() else "(no dynoxide: `make dynoxide`)"
    return f"engines: moto, ministack, {extra}"


# How long an example takes says what else the machine is doing: performance is a benchmark.
settings.register_profile("countledger", deadline=None)
settings.load_profile("countledger")

# A job in the background ignores Ctrl-C, and what it starts inherits that, unless undone here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
