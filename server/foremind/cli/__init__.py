"""The command line: one module per command."""

from foremind.cli.main import main

__all__ = ["main"]
