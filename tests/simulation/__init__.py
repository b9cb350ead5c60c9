"""The product's own code over simulated tables: seeded interleavings of all that runs at once."""
