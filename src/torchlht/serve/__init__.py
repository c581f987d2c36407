"""Pages and servers: a trained model where people are."""
