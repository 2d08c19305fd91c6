"""Honest typists beside attackers of every kind; `make hostile`."""
