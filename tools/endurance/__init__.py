"""Long runs on the embedded engine: many events, killed processes, and exact sums at the end."""
