"""Alert rules, evaluated on the stream of totals; each crossing alerts once, sent at least once."""
