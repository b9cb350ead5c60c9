"""One store per engine; every test works in a namespace of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from uuid import uuid4

import pytest

from countledger.infra.memory.faults import NotInMemory, refusal
from tests.engines import in_memory, looping, report
from tests.engines.differences import Difference, Engine
from tests.engines.running import ENGINES, NAMED, moto
from tests.engines.store import Store, fresh_store


@pytest.fixture(scope="session")
def server() -> Iterator[Callable[[str], Engine]]:
    """An engine that is a server, started at its first use."""
    with ExitStack() as running:

        @cache
        def start(name: str) -> Engine:
            return running.enter_context(ENGINES[name]())

        yield start


@pytest.fixture(
    scope="module",
    params=[*ENGINES] if NAMED in ENGINES else [*ENGINES, in_memory.NAME, looping.NAME],
)
def store(request: pytest.FixtureRequest, server: Callable[[str], Engine]) -> Iterator[Store]:
    """Both tables on each engine in turn, new for each module.

    What one module spoils no other one lists; and moto copies a table with all that its stream ever
    had for every transaction.
    """
    match request.param:
        case in_memory.NAME:
            with in_memory.memory_store() as made:
                yield made
        case looping.NAME:
            with fresh_store(server("ministack")) as plain, looping.looping_store(plain) as made:
                yield made
        case "moto":
            with moto() as engine, fresh_store(engine) as made:
                yield made
        case name:
            with fresh_store(server(name)) as made:
                yield made


@pytest.fixture
def tables(store: Store) -> Iterator[Store]:
    """The shared tables; or the test's own, where a transaction takes longer the more they hold."""
    if not store.engine.has(Difference.TRANSACTIONS_COPY_THEIR_TABLES):
        yield store
        return
    with fresh_store(store.engine) as own:
        yield own


@pytest.fixture(autouse=True)
def _costs_are_believable(request: pytest.FixtureRequest) -> None:
    """What promise P9 says of costs is checked on engines whose units can be believed."""
    if "_p9_" in request.node.name and "store" in request.fixturenames:
        store: Store = request.getfixturevalue("store")
        if store.engine.has(Difference.UNITS_ARE_INVENTED):
            pytest.skip(Difference.UNITS_ARE_INVENTED.value)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what the tables in memory do not have, where no request shows it."""
    if NAMED in ENGINES:
        items[:] = [one for one in items if "store" in getattr(one, "fixturenames", ())]
    items[:] = [one for one in items if not _takes_minutes_in_a_loop(one)]
    for item in items:
        call = getattr(item, "callspec", None)
        if call is None or call.params.get("store") != in_memory.NAME:
            continue
        missing = in_memory.LEFT_OUT.get(getattr(item, "originalname", item.name))
        if missing is not None:
            item.add_marker(pytest.mark.skip(reason=refusal(missing)))


def _takes_minutes_in_a_loop(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    in_a_loop = call is not None and call.params.get("store") == looping.NAME
    return in_a_loop and item.path.name in looping.LEFT_OUT


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test of the store in an event loop as a call of that loop."""
    store = pyfuncitem.funcargs.get("store")
    if not isinstance(store, looping.LoopingStore):
        return None
    arguments = pyfuncitem._fixtureinfo.argnames
    store.run(
        partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in arguments}),
        in_thread=pyfuncitem.path.name in looping.IN_THREADS,
    )
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """A test that meets what the tables in memory do not have is left out."""
    try:
        yield
    except NotInMemory as missing:
        pytest.skip(str(missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that meets what the tables in memory do not have is left out."""
    store = getattr(item, "funcargs", {}).get("store")
    if isinstance(store, Store):
        store.engine.met.clear()
    try:
        yield
    except NotInMemory as missing:
        pytest.skip(str(missing))
    finally:
        if isinstance(store, Store):
            named = sorted(one.name for one in store.engine.met)
            item.user_properties += [("difference", name) for name in named]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of a run against an endpoint."""
    if NAMED in ENGINES:
        for line in report.table(terminalreporter.stats):
            terminalreporter.write_line(line)


@pytest.fixture
def namespace() -> str:
    """A namespace that nobody has used."""
    return f"n{uuid4().hex[:8]}"


@pytest.fixture
def counter(namespace: str) -> str:
    """A counter that nobody has used, in a namespace that nobody has used."""
    return f"{namespace}:counter"
