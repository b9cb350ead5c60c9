"""The buffered producer: events are taken at once, and sent in the background."""
