"""Programs in processes of their own: the server, and a real language model."""
