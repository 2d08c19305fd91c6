"""What happens after a reply: notes, core memory, episodes, topics, profile, retention."""
