"""The commands of the command line, each a plain function of its options that can be imported and called without it."""
