"""Showing results: tables in the terminal, figures in two themes, the page about a run."""
