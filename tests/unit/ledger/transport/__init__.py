"""Unit tests of the fast transport."""
