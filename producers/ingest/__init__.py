"""The other end of the stream: what came through Kinesis goes into the ledger, each entry once."""
