"""Locks of a whole process that no fork inherits held."""

from __future__ import annotations

import os
from threading import Lock


def lock_open_in_forks() -> Lock:
    """A lock for a module to keep.

    A fork has but one of its parent's threads: what another one of them held would stay held there
    for ever. So a fork waits until this lock is free.
    """
    lock = Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
