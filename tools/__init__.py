"""What is run by hand or for a release, no test: `python -m tools.bench`, by `make bench`."""
