"""Where samples come from, a file each: a source says what it can read and gives `Samples`."""
