"""The kernel that all packages share: values, keys, settings, errors, the DynamoDB client."""
