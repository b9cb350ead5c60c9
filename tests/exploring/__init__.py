"""Every schedule of small worlds, checked against a model; see `scope` for how to add one."""
