"""
How far off the mistakes are
============================

Two classifiers may make about as many mistakes, and still differ in how bad these are: another species of the same family is one step off, another
order three.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from made_up import birds, forget

from torchlht import HierarchicalClassifier

x, names = birds(2000, apart=(0.8, 0.6, 0.6))
x_test, names_test = birds(2000, seed=1, apart=(0.8, 0.6, 0.6))
truth = names_test.to_numpy()

off = {}
for method in ("flat", "lht"):
    model = HierarchicalClassifier(method, epochs=15, random_state=0).fit(x, forget(names, 0.7))
    wrong = model.predict(x_test) != truth
    off[method] = [np.mean(wrong.sum(axis=1) == steps) for steps in (1, 2, 3)]

# %%
figure, panel = plt.subplots(figsize=(7, 3.4), layout="constrained")
for i, (method, colour) in enumerate((("flat", "#999999"), ("lht", "#2a6f97"))):
    panel.bar(np.arange(3) + 0.38 * i, [100 * share for share in off[method]], 0.36, color=colour, label=method)
panel.set_xticks(np.arange(3) + 0.19, ["right family", "right order", "another order"])
panel.set(ylabel="birds, %", title="answers with a wrong species")
panel.legend()
plt.show()
