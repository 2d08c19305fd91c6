"""The command line: one module per command, imported when that is run."""

from foremind.cli.main import main

__all__ = ["main"]
