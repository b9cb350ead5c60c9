"""The fast transport: the calls on items without the work that botocore does for each of them."""
