"""The main paths on a stack of one's own, in an account or on a local engine: `make smoke-aws`."""
