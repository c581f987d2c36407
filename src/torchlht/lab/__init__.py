"""What proves and reproduces: comparisons, the paper again, low-shot learning, archives, faults on purpose, the drawn birds."""
