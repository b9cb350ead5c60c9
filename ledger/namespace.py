"""Namespaces: what is fixed for all counters of one name before the colon.

Kind, spread and horizon can never change: the spread is part of every entry's key, so a retry
under another spread would be another entry; and compaction has already merged the entries that were
older than the old horizon. The settings are in `ledger`, so that every region sees the same ones.
Only the home region creates them, where a condition on one copy decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, decoded, optional, require
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import (
    BadSetting,
    CorruptItem,
    NamespaceConflict,
    NamespaceUnknown,
    WrongKind,
    shown,
)
from countledger.ledger.limits import (
    HORIZON_DEFAULT_MS,
    HORIZON_MAX_MS,
    HORIZON_MIN_MS,
    NOTE_MAX_BYTES,
)
from countledger.ledger.operations import (
    Compare,
    Query,
)
from countledger.ledger.recent import Recent
from countledger.ledger.records import NotRead, Records, Replacement
from countledger.ledger.texts import plain_int, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.records import Decide, Seen


class Kind(StrEnum):
    """What the counters of a namespace are; strict ones in the home region, or over regions."""

    LEDGER = "ledger"
    STRICT = "strict"
    STRICT_REGIONS = "strict-regions"
    SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace's settings, checked when they are made.

    Attributes:
        name: what its counters' names begin with.
        kind: what its counters are.
        spread: the number of key prefixes of a counter's entries: 1 keeps them in order of time,
            up to about 1,000 writes a second for one counter; 16 and 256 let DynamoDB split one.
        horizon_ms: for how long a retry is safe.
        description: for people.

    Raises:
        BadSetting: naming the value and the rule that it breaks.
    """

    name: str
    kind: Kind = Kind.LEDGER
    spread: int = 1
    horizon_ms: int = HORIZON_DEFAULT_MS
    description: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", keys.check_namespace(self.name))
        if self.kind not in list(Kind):
            raise BadSetting(f"kind {shown(self.kind)} is invalid: give one of {', '.join(Kind)}")
        for name in ("spread", "horizon_ms"):
            object.__setattr__(self, name, plain_int(getattr(self, name)) or getattr(self, name))
        if type(self.spread) is not int or self.spread not in keys.SPREADS:
            raise BadSetting(f"spread {shown(self.spread)} is invalid: give one of {keys.SPREADS}")
        if type(self.horizon_ms) is not int:
            raise BadSetting(f"horizon {shown(self.horizon_ms)} is no whole number of milliseconds")
        if not HORIZON_MIN_MS <= self.horizon_ms <= HORIZON_MAX_MS:
            raise BadSetting(
                f"a horizon of {show_duration(self.horizon_ms)} is not between "
                f"{show_duration(HORIZON_MIN_MS)} and {show_duration(HORIZON_MAX_MS)}"
            )
        if self.description is not None:
            object.__setattr__(self, "description", _check_description(self.description))


def _check_description(text: object) -> str:
    if not isinstance(text, str):
        raise BadSetting(f"description {shown(text)} is a {type(text).__name__}, not a str")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadSetting(f"description {shown(text)} is no valid Unicode text") from None
    if size > NOTE_MAX_BYTES:
        raise BadSetting(f"the description is longer than {NOTE_MAX_BYTES} bytes")
    return plain_text(text)


def encode_namespace(namespace: Namespace) -> Item:
    """Its item in `ledger`; `directory` puts it into the index that lists namespaces."""
    return {
        **keys.namespace_key(namespace.name),
        "directory": keys.DIRECTORY,
        "kind": str(namespace.kind),
        "spread": namespace.spread,
        "horizon_ms": namespace.horizon_ms,
        "description": namespace.description,
    }


def decode_namespace(item: Item) -> Namespace:
    check_format(item)
    name = require(item, "counter", str).removeprefix(keys.NAMESPACE_PREFIX)
    try:
        return Namespace(
            name,
            Kind(require(item, "kind", str)),
            require(item, "spread", int),
            require(item, "horizon_ms", int),
            optional(item, "description", str),
        )
    except ValueError as error:
        raise CorruptItem(f"settings of namespace {name!r}: {error}", item) from error


@dataclass(frozen=True, slots=True)
class KnownNamespaces:
    """What a process knows of the namespaces of a stack: their settings cannot change.

    Of each the settings, and the record as last read or written.
    """

    records: Recent[str, tuple[Namespace, Item]] = field(default_factory=Recent)


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The namespaces of a stack.

    Attributes:
        connection: to the stack.
    """

    connection: Connection
    _known: KnownNamespaces = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", self.connection.shared(KnownNamespaces))

    def create(
        self,
        name: str,
        *,
        kind: Kind = Kind.LEDGER,
        spread: int = 1,
        horizon_ms: int = HORIZON_DEFAULT_MS,
        description: str | None = None,
    ) -> Namespace:
        """Create a namespace; creating it again with the same settings is no error.

        Two write units: its item, and its copy in the index that lists it.

        Args:
            name: what its counters' names begin with.
            kind: what its counters are.
            spread: the number of key prefixes of a counter's entries: 1, 16 or 256.
            horizon_ms: for how long a retry is safe.
            description: for people; the only one that can be changed later.

        Raises:
            BadSetting: a value breaks its rule.
            NamespaceUnknown: this is not the home region.
            NamespaceConflict: it exists with another kind, spread or horizon.
        """
        namespace = Namespace(name, kind, spread, horizon_ms, description)
        made = self._make(namespace)
        if replace(made, description=description) != namespace:
            raise NamespaceConflict(
                f"namespace {name!r} exists with {show_fixed(made)}, which cannot "
                f"change; the call gives {show_fixed(namespace)}: take another name"
            )
        return made

    def describe(self, name: str, description: str) -> Namespace:
        """Give a namespace another description: two write units, as to make it.

        One more if another process has described it since this one read it.

        Raises:
            BadSetting: the name or the description breaks its rule.
            NamespaceUnknown: no namespace has that name, or this is not the home region.
            Throttled: other calls described it each time.
            Unclear: no clear answer came; or others described it after an attempt that got no
                answer: read it, and call again.
        """
        name, description = keys.check_namespace(name), _check_description(description)
        self._refuse_elsewhere(name)
        self.get(name)
        known = self._known.records.get(name)

        def decide(there: Item | None) -> Replacement:
            return Replacement({**(there or {}), "description": description})

        return self._written(name, decide, NotRead.READ_IT if known is None else known.value[1])

    def get(self, name: str, wanted: Kind = Kind.LEDGER) -> Namespace:
        """A namespace, read once per process: it cannot change. One read unit.

        Raises:
            NamespaceUnknown: none can be seen from here; with how to make one of the kind wanted.
        """
        name = plain_text(name)
        namespace = self.find(name)
        if namespace is None:
            option = "" if wanted is Kind.LEDGER else f" --kind {wanted}"  # it will be fixed
            raise NamespaceUnknown(
                f"namespace {name!r} does not exist (or has not reached {self.connection.region} "
                f"yet): `countledger namespace create {name}{option}` makes it"
            )
        return namespace

    def list(self, *, on_corrupt: OnCorrupt | None = None) -> list[Namespace]:
        """All namespaces, by name; half a read unit for each 4 KB. `on_corrupt` as in `decoded`."""
        listed = Compare("directory", "=", keys.DIRECTORY)
        listing = Query(self.connection.ledger, listed, index=keys.NAMESPACES_INDEX)
        pages = self.connection.retrying.pages(listing)
        return [*decoded((one for page in pages for one in page), decode_namespace, on_corrupt)]

    def for_use(
        self, counter: str, kind: Kind, check: Callable[[Namespace], object] | None = None
    ) -> Namespace:
        """The namespace of a counter, made with defaults at its first use, unless `check` raises.

        Raises:
            NamespaceUnknown: it cannot be seen from here and may be made in the home region only.
            WrongKind: its counters are of another kind.
        """
        name = keys.namespace_of(counter)
        if (found := self.find(name)) is None and check is not None:
            check(Namespace(name, kind))
        return _of_kind(counter, found or self._make(Namespace(name, kind)), kind)

    def expect(self, counter: str, kind: Kind) -> Namespace:
        """The namespace of a counter, which must exist.

        Raises:
            NamespaceUnknown: there is none that can be seen from here.
            WrongKind: its counters are of another kind.
        """
        return _of_kind(counter, self.get(keys.namespace_of(counter), kind), kind)

    def is_of_a_ledger(self, counter: str) -> bool:
        """Whether a counter can have a ledger: unless its namespace exists and is of another kind.

        One read unit for each namespace that does not exist or was not read yet.
        """
        namespace = self.find(keys.namespace_of(counter))
        return namespace is None or namespace.kind is Kind.LEDGER

    def find(self, name: str) -> Namespace | None:
        """A namespace, or None if none can be seen from here: one read unit, if it is not known."""
        if (known := self._known.records.get(name)) is not None:
            return known.value[0]
        connection, key = self.connection, keys.namespace_key(name)
        item = connection.retrying.get(connection.ledger, key, consistent=True)
        return None if item is None else self._know(item)

    def _know(self, item: Item) -> Namespace:
        namespace = decode_namespace(item)
        self._known.records.keep(namespace.name, (namespace, item))
        return namespace

    def _make(self, namespace: Namespace) -> Namespace:
        """The namespace after an attempt to create it: the first attempt decides its settings."""
        self._refuse_elsewhere(namespace.name)

        def decide(there: Item | None) -> Replacement | None:
            return None if there else Replacement(encode_namespace(namespace))

        return self._written(namespace.name, decide, NotRead.EXPECT_NOTHING)

    def _written(self, name: str, decide: Decide, seen: Seen) -> Namespace:
        connection = self.connection
        records = Records(connection, connection.ledger, "namespace", removable=False)
        key = keys.namespace_key(name)
        written = connection.run(records.write(name, key, decide, seen=seen))
        return self._know(written.item or {})

    def _refuse_elsewhere(self, name: str) -> None:
        to = self.connection
        home = to.home_beside("ledger_table")
        if home is None:
            replicas = to.retrying.describe(to.ledger).get("Replicas", ())
            alone = all(one.get("RegionName") == to.region for one in replicas)
            home = to.region if alone else "(set COUNTLEDGER_HOME_REGION)"
        if to.region != home:
            raise NamespaceUnknown(
                f"namespace {name!r} can be made and changed in the home region {home} only, and "
                f"this is {to.region}; if it was made there, wait until it has been replicated"
            )


def show_fixed(namespace: Namespace) -> str:
    """The settings of a namespace that cannot change, for a message."""
    horizon = show_duration(namespace.horizon_ms)
    return f"kind {namespace.kind}, spread {namespace.spread}, horizon {horizon}"


def _of_kind(counter: str, namespace: Namespace, kind: Kind) -> Namespace:
    if namespace.kind != kind:
        raise WrongKind(
            f"counter {counter!r} is in namespace {namespace.name!r} of kind {namespace.kind}; "
            f"this call is for counters of kind {kind} (the kind of a namespace is fixed)"
        )
    return namespace


@dataclass(frozen=True, slots=True)
class StrictRegions:
    """Which counters are over regions: strict ones in the table `strict`, and not in `counters`."""

    table: str
    namespaces: Namespaces

    @classmethod
    def of(cls, connection: Connection) -> StrictRegions | None:
        """Those of a stack; None: the stack has none here."""
        return None if connection.strict is None else cls(connection.strict, Namespaces(connection))

    def has(self, counter: str) -> bool:
        """Whether a counter is over regions: a read unit for each namespace, once."""
        namespace = self.namespaces.find(keys.namespace_of(counter))
        return namespace is not None and namespace.kind is Kind.STRICT_REGIONS

    def refuse(self, counters: Iterable[str], what: str) -> None:
        """Raise BadSetting if the table does not allow a use; `what` says what to use instead."""
        for counter in filter(self.has, counters):
            raise BadSetting(f"counter {counter!r} is over regions (kind strict-regions): {what}")
