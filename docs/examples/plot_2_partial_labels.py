"""
What coarse labels are worth
============================

The same birds, with the species of more and more of them forgotten. A flat classifier can only learn from birds whose species is known. One that
knows the tree learns from all of them.
"""

# %%
import matplotlib.pyplot as plt
from made_up import birds, forget, tree

from torchlht import HierarchicalClassifier

x, names = birds(1500)
x_test, names_test = birds(2000, seed=1)
shares = [0.0, 0.5, 0.8, 0.9]

found = {}
for method in ("flat", "multihead", "lht"):
    for share in shares:
        model = HierarchicalClassifier(method, hierarchy=tree(), epochs=15, random_state=0).fit(x, forget(names, share))
        found[method, share] = model.scores(x_test, names_test)

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for panel, level in zip(panels, ("family", "species"), strict=True):
    for method, colour in (("flat", "#999999"), ("multihead", "#e09f3e"), ("lht", "#2a6f97")):
        panel.plot([100 * s for s in shares], [100 * found[method, s][level] for s in shares], "o-", color=colour, label=method)
    panel.set(title=level, xlabel="species forgotten, %", ylabel="right, %")
panels[0].legend()
plt.show()

# %%
# One seed on made-up birds is a demonstration. ``lht compare`` does this on your own data, with seeds, and says which differences are shown.
