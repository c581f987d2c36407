"""The sections of the page about a run, by topic."""
