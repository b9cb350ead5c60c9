"""Which repository the demo counts when none is named: the project's own."""

from __future__ import annotations

from pathlib import Path

import countledger
from countledger.infra.demo.errors import NotARepository


def own_repository() -> Path:
    """The checkout that this package runs from.

    Raises:
        NotARepository: it was installed from a wheel, or its checkout has no history.
    """
    root = Path(countledger.__file__).resolve().parent.parent
    # An installed package may well lie in somebody else's repository: that one is not ours.
    if (root / ".git").exists() and (root / "pyproject.toml").is_file():
        return root
    raise NotARepository(
        f"countledger runs from {root}, which is no git checkout of its own: "
        "name a repository to count with --repo PATH"
    )
