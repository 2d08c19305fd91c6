"""Plain HTTP."""
