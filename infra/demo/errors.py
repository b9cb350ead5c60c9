"""What stops the demo before it counts anything; whose turn it is, is the person's."""

from __future__ import annotations

from countledger.ledger.errors import SetupError


class GitMissing(SetupError):
    """There is no git on this machine."""


class NotARepository(SetupError):
    """The path is no git repository, or git refuses to open it."""


class EmptyRepository(SetupError):
    """The repository has no commit at HEAD."""


class GitFailed(SetupError):
    """A git command failed in the middle: a damaged or partial clone."""
