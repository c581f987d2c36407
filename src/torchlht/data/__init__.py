"""Pictures or features with their labels: where they come from, what is hidden, and how they become batches."""
