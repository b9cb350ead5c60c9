"""What keeps ledgers small: old entries are merged, archived, salvaged; counters are deleted."""
