"""New classes from a few examples each: group names into a tree, train features on it, classify with few examples."""
