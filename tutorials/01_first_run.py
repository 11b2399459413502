"""
A first run
===========

`rmopt run similarity --data digits` learns which handwritten digits are alike, compares methods, and writes what it
found into a folder; without `--data` it learns from texts, the documentation of scipy. Here the same is done from
Python, and the parts are named on the way.
"""

# %%
# The command
# -----------
#
# The run takes some seconds. `--methods` names four methods of those that there are, `--seeds 3` repeats all on three
# random splits, and `--select none` takes step sizes as they are, in place of cross-validation. `--out` names the
# folder; without it the command chooses a new one and says which.

import json
import subprocess
import sys
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp()) / "digits"
options = ["--data", "digits", "--methods", "cosine,naive-gd,pa,loreta", "--rank", "10", "--triplets", "20000", "--seeds", "3", "--select", "none"]
command = [sys.executable, "-m", "rmopt.cli", "run", "similarity", *options, "--out", str(folder)]
print(
    subprocess.run(command, capture_output=True, text=True, check=True).stdout.replace(str(folder), "digits")
)

# %%
# Mean average precision (mAP) is the quality of the whole ranking when each test image in turn is the query. Below the
# table stands what the paper claims of its own data, and whether that holds here: methods are compared split by split,
# and "undecided" is what chance could have brought as well. The learning curves are among the files:

import matplotlib.pyplot as plt

figure = plt.figure()
figure.figimage(plt.imread(folder / "learning-curves.png"), resize=True)
plt.show()

# %%
# `result.json` holds every number, the parameters and the seed that repeat them, and how the run compares
# with what the paper claims.

result = json.loads((folder / "result.json").read_text())
for row in result["rows"]:
    print(f"{row['method']:28} {row['map']:.3f}")

# %%
# The same in Python
# ------------------
#
# Behind the row "LORETA-1" is an estimator in scikit-learn's form. It draws triplets (a query, an image of the
# same digit, one of another digit) and learns a 64 × 64 matrix W of rank 10 such that qᵀ W d ranks the
# images.

import numpy as np
from sklearn.datasets import load_digits

from problems.similarity import LoretaSimilarity

images, y = load_digits(return_X_y=True)
X = images / np.linalg.norm(images, axis=1, keepdims=True)
model = LoretaSimilarity(rank=10, random_state=0).fit(X[:1200], y[:1200])
print(f"mean average precision on new images: {model.score(X[1200:], y[1200:]):.3f}")

# %%
# Looking at what was learned: some queries, and the five images that W finds most similar to each.

similar = model.similarity(X[1200:], X[:1200])
queries = [3, 17, 40, 62]
figure, axes = plt.subplots(len(queries), 6, figsize=(5, 3.6))
for line, query in zip(axes, queries, strict=True):
    found = [1200 + query, *np.argsort(-similar[query])[:5]]
    for place, (cell, number) in enumerate(zip(line, found, strict=True)):
        cell.imshow(images[number].reshape(8, 8), cmap="gray_r")
        cell.set_xticks([])
        cell.set_yticks([])
        cell.set_title("query" if place == 0 else str(y[number]), fontsize=8)
figure.tight_layout()
plt.show()

# %%
# The three parts
# ---------------
#
# An estimator is a cost on a manifold, and a solver. Everything that follows in these tutorials is about
# making, and exchanging, one of these.

from problems.similarity import ClassTriplets
from rmopt import Problem
from rmopt.costs import TripletSum
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD

problem = Problem(FixedRankEmbedded(64, 64, 10), TripletSum(X[:1200], X[:1200]))
solver = SGD(10.0, max_iter=20_000, sampler=ClassTriplets(y[:1200]))
found = solver.run(problem, problem.manifold.identity(), random_state=0)
print(found)

# %%
# What should hold
# ----------------

assert {"learning-curves.png", "result.json"} <= {path.name for path in folder.iterdir()}
assert max(result["rows"], key=lambda row: row["map"])["method"].startswith("LORETA")
assert model.score(X[1200:], y[1200:]) > 0.7
assert found.steps == 20_000
