"""What docs/strict.md does not say by itself: tables made from what the tests expect."""
