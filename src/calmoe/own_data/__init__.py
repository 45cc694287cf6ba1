"""From people's own data to a model: look, split, train, score, write the model's folder and its page."""
