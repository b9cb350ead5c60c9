"""What every run of the suite says of itself."""

from tests.engines.binaries import dynoxide_binary


def pytest_report_header() -> str:
    """Which engines the contract suite runs on."""
    extra = "dynoxide" if dynoxide_binary().is_file() else "(no dynoxide: `make dynoxide`)"
    return f"engines: moto, ministack, {extra}"
