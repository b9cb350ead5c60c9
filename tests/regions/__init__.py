"""Several regions on one engine, with replication in the hands of the test."""
