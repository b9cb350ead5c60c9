"""Who may do what: scopes, each a namespace and a verb.

    likes:read      read the counters of namespace `likes`
    likes:write     change them
    likes:admin     both, and create, bound and delete them
    *:read          the same of every namespace, and what belongs to the whole stack

A namespace is written with percent-encoding where it holds a character that a scope of OAuth 2.0
cannot hold. A caller without scopes may do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from countledger.ledger.errors import CountledgerError

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERY_NAMESPACE: Final = "*"


class NotAuthenticated(CountledgerError):
    """The request carries no identity that this API accepts."""


class ScopeMissing(CountledgerError):
    """The caller is known, and has no scope for this request."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"this request requires the scope {scope!r}: get a token that has it")
        self.scope = scope


class ScopeVerb(StrEnum):
    """What a scope allows."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Scopes:
    """Pairs of a namespace, or `*`, and a verb: what a caller may do."""

    granted: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Scopes:
        """The scopes among these texts; a token may carry others, which are of other systems.

        `%2A` is the namespace of that name, which only `*` covers, and never every namespace.
        """
        verbs = set(ScopeVerb)
        pairs = (text.rpartition(":") for text in texts if not text.upper().startswith("%2A:"))
        return cls(frozenset((unquote(of), verb) for of, _, verb in pairs if of and verb in verbs))

    def allows(self, verb: ScopeVerb, namespace: str) -> bool:
        """Whether they allow this; `admin` includes both other verbs."""
        return any(
            (of, allowed) in self.granted
            for of in (namespace, EVERY_NAMESPACE)
            for allowed in (verb, ScopeVerb.ADMIN)
        )

    def require(self, verb: ScopeVerb, namespace: str = EVERY_NAMESPACE) -> None:
        """Continue only if they allow this; the default is what belongs to the whole stack."""
        if not self.allows(verb, namespace):
            raise ScopeMissing(f"{namespace}:{verb}")


READ_EVERYTHING: Final = Scopes.parse(["*:read"])
EVERYTHING: Final = Scopes.parse(["*:admin"])
