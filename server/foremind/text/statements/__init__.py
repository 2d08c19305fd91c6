"""What a text says of the one who says it."""
