"""All that writes: recording events, strict counters and holds, claims, quotas and sequences."""
