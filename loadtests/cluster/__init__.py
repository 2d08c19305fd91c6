"""Gateways that are killed under traffic: what is lost, what is doubled, how long it takes."""
