"""What a draft brings back: queries, the index, ranking, layers and documents."""
