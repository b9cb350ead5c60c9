"""Calls of domains, each described once: its command and its route are made of it."""
