"""What reads and proves counters, for event loops."""
