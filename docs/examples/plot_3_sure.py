"""
As deep as it is sure
=====================

Allow at most one wrong answer in twenty. Where the model is not sure enough, it answers less deeply: with the family instead of the species, or the
order instead of the family.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from made_up import LEVELS, birds, forget

from torchlht import HierarchicalClassifier

x, names = birds(3000)
x_test, names_test = birds(2000, seed=1)
model = HierarchicalClassifier(val=0.3, epochs=15, random_state=0).fit(x, forget(names, 0.6))

# %%
# ``risk`` chooses the threshold on birds set aside, with a guarantee for finite samples.
risks = [0.02, 0.05, 0.1, 0.2]
depth, wrong = [], []
for risk in risks:
    answers = model.predict(x_test, risk=risk)
    given = answers != ""
    depth.append([given[:, k].mean() - (given[:, k + 1].mean() if k < 2 else 0) for k in range(3)])
    wrong.append(((answers != names_test.to_numpy()) & given).any(axis=1)[given[:, 0]].mean())

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
bottom = np.zeros(len(risks))
for k, colour in enumerate(("#d9e6ee", "#7fb0cd", "#2a6f97")):
    share = 100 * np.array(depth)[:, k]
    left.bar([f"{risk:.0%}" for risk in risks], share, bottom=bottom, color=colour, label=f"down to the {LEVELS[k]}")
    bottom += share
left.set(title="how deep the answers go", xlabel="asked for: at most this many wrong", ylabel="answers, %")
left.legend(loc="lower right")
right.plot([0, 20], [0, 20], color="#999999", lw=1)
right.plot([100 * risk for risk in risks], [100 * one for one in wrong], "o", color="#2a6f97")
right.set(title="how many are wrong", xlabel="asked for, %", ylabel="found, %")
plt.show()
