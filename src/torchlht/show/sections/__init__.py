"""The sections of the page about a run, by what they are about."""
