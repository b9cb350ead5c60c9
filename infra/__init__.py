"""Where it runs: the template, its deployment, the command line, HTTP, this machine, memory."""
