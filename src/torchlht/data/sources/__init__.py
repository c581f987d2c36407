"""The kinds of data, one file each: a source recognises what it can read, and reads it into `Samples`."""
