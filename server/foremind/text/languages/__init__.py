"""What is known of each language that players write in: one file of words each. Pure."""
