"""Benchmarks by name: one file per official archive, written out as a table and a tree."""
