"""Experiments: comparisons, reproducing the paper, low-shot learning, archives, faults on purpose, the drawn birds."""
