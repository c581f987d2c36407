"""Pictures or features with their labels: reading them, hiding labels, and making batches."""
