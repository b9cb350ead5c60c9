"""Entries in Kinesis records: packing, sending and unpacking."""
