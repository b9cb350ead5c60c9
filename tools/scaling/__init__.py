"""The table of docs/scaling.md, against a simulation of partitions, shards and batches."""
