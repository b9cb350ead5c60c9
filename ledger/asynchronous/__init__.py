"""Synchronous code in event loops: its calls are suspended where they would wait."""
