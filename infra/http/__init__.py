"""The HTTP API: the same application on Lambda and on a server of this machine."""
