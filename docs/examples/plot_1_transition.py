"""
What LHT does to one picture
============================

A classifier says how probable each species is. A *transition matrix*, made for this very picture, turns species into families. It has a
column for each species, which sums to one. It starts near the tree and may leave it where the labels say so.
"""

# %%
# Train a head on made-up birds. For half of them, nobody wrote down the species.
import matplotlib.pyplot as plt
import torch
from made_up import birds, forget, tree

import torchlht

x, names = birds(3000)
classes = tree()
known = forget(names, 0.5)
labels = torch.tensor(
    [
        [classes.index(k, name) if name else -1 for k, name in enumerate(reversed(row))]  # fine first, -1 = unknown
        for row in known.to_numpy().tolist()
    ]
)
features = torch.tensor(x, dtype=torch.float32)

torch.manual_seed(0)
head = torchlht.LHTHead(in_features=24, hierarchy=classes, width=128)
optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3)
for _ in range(150):
    batch = torch.randint(len(features), (256,))
    loss = head.loss(head(features[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
head.eval()

# %%
# One bird: the species it could be, the matrix that was made for it, and the families that follow. The matrix times the left bars gives the right ones.
with torch.no_grad():
    seen = head(features[:1])
    species, family, matrix = seen.probs(0)[0], seen.probs(1)[0], seen.transition(0)[0]

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 4), width_ratios=[2, 3, 1], layout="constrained")
left.bar(range(48), species, color="#2a6f97")
left.set(title="p¹: species", xlabel="species", ylabel="probability")
middle.imshow(matrix, aspect="auto", cmap="viridis", vmin=0, vmax=1)
middle.set(title="T: from species to families", xlabel="species", ylabel="family")
right.barh(range(12), family, color="#2a6f97")
right.invert_yaxis()
right.set(title="p² = T p¹", xlabel="probability")
plt.show()

# %%
# Columns sum to one, so no probability is lost.
print(matrix.sum(dim=0)[:5], float((matrix @ species - family).abs().max()))
