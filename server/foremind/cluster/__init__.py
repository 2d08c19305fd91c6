"""Several processes on one database: what they tell each other, and which of them owns what."""
