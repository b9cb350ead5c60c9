"""Entries on their way through Kinesis: packed, sent, and unpacked again."""
