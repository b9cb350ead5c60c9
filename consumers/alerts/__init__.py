"""Alerts: rules, judged on the stream of totals; every crossing once, delivered at least once."""
