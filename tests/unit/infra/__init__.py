"""Pure parts of the local stack and facts of the template; no AWS."""
