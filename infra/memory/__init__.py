"""Tables, stream and services in memory: what `countledger.testing` puts a stack together from.

The simulation of the project's own tests runs on the same tables, and the contract suite of the
engines holds them to the behaviour of DynamoDB.
"""
