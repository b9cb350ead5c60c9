"""What writes counters, and emits through Kinesis, for event loops."""
