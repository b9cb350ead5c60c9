"""What apps write with: recording, strict counters and holds, claims, quotas and sequences."""
