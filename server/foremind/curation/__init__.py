"""After a reply, in the background: what was said becomes notes, summaries, episodes, topics."""
