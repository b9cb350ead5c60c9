"""The read side: streams become totals, and totals are read, judged and verified."""
