"""Doubting labels: which are probably wrong, which samples are twins, and where the tree does not fit what is seen.

    features, labels ──► discriminant, out of fold ──► scores ──► wrong: P(label is wrong) per level, suggestions, how many
                                                         └──────► misplaced: classes under the wrong parent, two names for one
    features or pictures ──► twins, strangers

An opinion about a sample never comes from a model that has seen its label. Only the classes that the known labels allow take
part in learning, so that samples without a finest label teach, too.
"""
