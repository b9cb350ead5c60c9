"""The stack in an AWS account: bundle, template, change sets."""
