"""From a data frame with blanks to answers that go as deep as they are sure.

Run it as a script, or cell by cell in an editor that knows `# %%`. It takes a few seconds.
"""

# %% Data, made up here: 24 numbers for each bird, as a network would give them, and what its finder wrote down.
import numpy as np
import pandas as pd

from torchlht import HierarchicalClassifier

LEVELS = ["order", "family", "species"]
TREE = {
    ("Shorebirds", "Gulls"): ["Herring Gull", "Ivory Gull", "Ring-billed Gull"],
    ("Shorebirds", "Auks"): ["Horned Puffin", "Tufted Puffin"],
    ("Songbirds", "Wrens"): ["House Wren", "Marsh Wren", "Rock Wren"],
    ("Songbirds", "Finches"): ["Purple Finch", "Pine Siskin", "Goldfinch"],
    ("Songbirds", "Jays"): ["Blue Jay", "Florida Jay"],
}
paths = pd.DataFrame([(*above, name) for above, names in TREE.items() for name in names], columns=LEVELS)
rng = np.random.default_rng(0)
bird = rng.integers(len(paths), size=2000)
numbers = rng.normal(size=(2000, 24))
for level, apart in zip(LEVELS, (0.7, 0.5, 0.4), strict=True):
    numbers += apart * rng.normal(size=(len(paths), 24))[paths.groupby(level).ngroup()][bird]
features, names = pd.DataFrame(numbers).add_prefix("f"), paths.iloc[bird].reset_index(drop=True)
names.loc[rng.random(2000) < 0.7, "species"] = ""  # most finders stop at the family,
names.loc[rng.random(2000) < 0.2, ["family", "species"]] = ""  # some at the order

# %% Learn from 1,500 of them. A fifth of these is set aside, to find out how sure the answers may be.
model = HierarchicalClassifier(val=0.2, random_state=0).fit(features[:1500], names[:1500])
print(f"{model.score(features[1500:], names[1500:]):.0%} of the others are right at the finest level that is known")

# %% At most one answer in ten may be wrong. What is not sure enough stays blank.
answers = pd.DataFrame(model.predict(features[1500:], risk=0.1), columns=model.levels_)
print(answers.head(8).to_string())

# %% How deep the answers go, and how many are right, by the names that nobody wrote down.
truth = paths.iloc[bird[1500:]].reset_index(drop=True)
print((answers != "").mean().map("{:.0%} answered".format).to_string())
print(f"{((answers == truth) | (answers == '')).all(axis=1).mean():.0%} of the answers are right")

# %% The probabilities behind the first answer.
print(model.proba_frame(features[1500:1501])["family"].round(3).to_string())
