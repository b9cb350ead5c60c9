"""The write side: entries go into the ledger, each once."""
