"""Figures of what a trained model does, one file each."""
