"""One file per method, one registered class each. A new file here is found automatically."""
