"""New classes from a few examples each: names grouped into a tree, features trained under it, rules that tell classes apart."""
