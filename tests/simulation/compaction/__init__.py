"""The model of compaction alone: one counter, its entries followed by the digits of every sum."""
