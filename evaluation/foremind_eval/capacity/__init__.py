"""What a number of players costs: unit costs as measured, and what follows from them."""
