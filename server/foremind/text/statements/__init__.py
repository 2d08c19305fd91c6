"""What a text states about its speaker."""
