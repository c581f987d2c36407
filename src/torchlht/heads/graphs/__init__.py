"""Methods for several labels per sample, in a graph of classes."""
