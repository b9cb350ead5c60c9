"""An error that proves that nothing was sent, for tests without a network."""

from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError


def refused_connection() -> NewConnectionError:
    """What urllib3 raises where nobody listens, raised by urllib3."""
    try:
        HTTPConnection("127.0.0.1", 1).connect()
    except NewConnectionError as error:
        return error
    raise AssertionError("something listens on port 1")
