"""What to tell the user: from probabilities at every level to one consistent answer, as deep as one can be sure.

rules        which class is answered at each level
calibration  temperatures, so that 90 % means nine times out of ten
restriction  only some classes are possible: --only, --exclude
rollup       the deepest answer that passes a threshold
risk         the threshold that keeps wrong answers under a share, from validation samples
operating    what an operating point is worth: right or wrong, how deep, how much it says
named        all of that in names
"""
