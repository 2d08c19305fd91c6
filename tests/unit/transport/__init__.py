"""What comes before messages: frames, heads, turns, room."""
