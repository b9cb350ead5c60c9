"""The buffered producer: it accepts events at once and sends them in the background."""
