"""What to ask an annotator next: which sample, and at which level."""
