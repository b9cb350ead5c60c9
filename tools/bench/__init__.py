"""Benchmarks: they print ratios against a peer in the same run and never fail."""
