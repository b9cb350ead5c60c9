"""How a stack is: facts gathered from its services, and which action they require."""
