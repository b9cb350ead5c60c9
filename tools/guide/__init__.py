"""What the documents do not say by themselves: tables made from what the tests expect."""
