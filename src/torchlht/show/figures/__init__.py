"""Figures about a trained model, one file per kind."""
