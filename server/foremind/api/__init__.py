"""Plain HTTP: health, what users and operators may see and change, the demo page."""
