"""The kernel that every room shares: values, keys, settings, errors, the client to DynamoDB."""
