"""From features to a `Prediction` and a loss: transitions, losses, rules of answering, and the methods."""
