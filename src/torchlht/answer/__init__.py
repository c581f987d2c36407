"""What to tell the user: from probabilities at every level to one consistent answer, as deep as one can be sure.

calibration  temperatures, so that 90 % means nine times out of ten; the deepest answer that passes a threshold; the threshold
             that keeps wrong answers under a share
named        answers in names, and names of the only classes that are possible: --only, --exclude
asking       the loop over samples
backbones    networks by name
model        what predicts, a trained model, its run directory
exported/    a run as one file that runs elsewhere
"""
