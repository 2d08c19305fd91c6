"""The command line: one module for each command."""

from foremind.cli.main import main

__all__ = ["main"]
