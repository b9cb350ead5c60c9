"""One hostile server for each module, with both tables behind it."""

import gc
from collections.abc import Iterator

import pytest

from tests.engines.differences import MOTO, Engine
from tests.engines.running import local_session
from tests.engines.store import Store, fresh_store
from tests.transport.certificate import make_certificate
from tests.transport.server import HostileServer, hostile_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileServer]:
    """The server, which every client of the module trusts."""
    trusted, private = make_certificate(tmp_path_factory.mktemp("authority"))
    with pytest.MonkeyPatch.context() as patch, hostile_server(trusted, private) as running:
        patch.setenv("AWS_CA_BUNDLE", str(trusted))
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.delenv(name, raising=False)
        yield running
        gc.collect()  # what broken connections leave is this module's


@pytest.fixture(scope="module")
def store(server: HostileServer) -> Iterator[Store]:
    """Both tables, reached through the server."""
    engine = Engine("hostile", local_session(validate_parameters=False), server.url, MOTO)
    with fresh_store(engine) as made:
        yield made


@pytest.fixture(autouse=True)
def honest_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    """What one test planned no other one meets."""
    yield
    if "server" in request.fixturenames or "store" in request.fixturenames:
        running = request.getfixturevalue("server")
        running.plan.clear()
        running.seen.clear()
        running.delay_s = 0.0
