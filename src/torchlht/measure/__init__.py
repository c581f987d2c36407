"""How good a model is: metrics, evaluation of a run, operating points, and which differences are real."""
