"""The stack on this machine: an engine that plays AWS, and the event source mappings."""
