"""Totals: made from the stream, read, evaluated, verified and repaired.

And the settings that say so: windows, groups, rankings, alert rules.
"""
