"""How a stack is: facts gathered from its services, and what of them needs a person."""
