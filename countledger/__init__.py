"""Ledger-based counters on DynamoDB."""
