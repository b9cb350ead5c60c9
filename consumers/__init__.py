"""The read side: streams become totals, and totals are read, evaluated and verified."""
