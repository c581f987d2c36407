"""One file per method, one registered class each. A file that is put here is found by itself."""
