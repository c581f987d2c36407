"""From probabilities at every level to one consistent answer, as deep as the model is sure.

calibration  temperatures, so that 90 % means nine times out of ten; the deepest answer that reaches a threshold; the threshold
             that limits the share of wrong answers
named        answers in names, and restricting the possible classes by name: --only, --exclude
asking       the loop over samples
backbones    networks by name
model        predictors, trained models, run directories
exported/    a run as one file that works without it
"""
