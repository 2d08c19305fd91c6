"""The HTTP API: health, users' and operators' resources, the demo page."""
