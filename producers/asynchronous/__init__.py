"""The buffered producer on an event loop."""
