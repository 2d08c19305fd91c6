"""Test doubles: controllable clocks and language models."""
