"""What the layers' background work costs a reply on a model server with one slot."""
