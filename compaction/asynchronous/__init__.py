"""What keeps ledgers small, for event loops."""
