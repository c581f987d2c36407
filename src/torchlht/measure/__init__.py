"""How good a model is: metrics, the samples of a run, operating points, and which differences are real."""
