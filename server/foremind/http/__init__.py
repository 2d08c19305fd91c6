"""Plain HTTP: health, metrics, the list of companions, the demo page."""
