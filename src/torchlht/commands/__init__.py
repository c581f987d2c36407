"""The commands of the command line. Each is a plain function of its options, which can also be imported and called."""
