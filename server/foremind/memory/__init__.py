"""What is worth keeping, and what is worth bringing back."""
