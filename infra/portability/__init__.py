"""Moving in and out: opening balances into a stack, and every balance out of one."""
