"""What every process needs: supervised tasks, logs, metrics, files that ship with the code."""
