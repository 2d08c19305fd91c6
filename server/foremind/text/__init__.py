"""What can be read from a text by itself: terms, times, statements, features. Pure."""
