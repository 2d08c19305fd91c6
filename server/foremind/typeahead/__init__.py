"""Left of Enter: speculation that writes nothing, where the latest draft wins."""
