"""The deployments in deploy/, checked by the tools they are for and run as processes."""
