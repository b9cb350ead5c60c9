"""Mutation testing of the conditions in producers, consumers and compaction."""
