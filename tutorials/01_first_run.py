"""
A first run
===========

**Beginner, 10 minutes.** You learn to run an experiment from the command line and from Python, and to read
its results. Before this: nothing.

`rmopt run similarity` learns which texts are alike, compares several methods on random splits, and writes
what it found into a folder. The texts are the documentation of scipy's functions, which every installation
has. Here the same is done from Python, and the parts are named on the way.
"""

# %%
# The command
# -----------
#
# `--seeds 3` repeats all on three random splits, and `--select none` takes step sizes as they are, in place of
# cross-validation. `--out` names the folder; without it the command chooses a new one and says which.

import json
import subprocess
import sys
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp()) / "documents"
options = "--methods cosine,naive-gd,pa,loreta --rank 20 --triplets 50000 --seeds 3 --select none"
command = [sys.executable, "-m", "rmopt.cli", "run", "similarity", *options.split()]
command += ["--out", str(folder)]
done = subprocess.run(command, capture_output=True, text=True, check=True)
print(done.stdout.replace(str(folder), "documents"))

# %%
# Mean average precision (mAP) is the quality of the whole ranking when each held-out document in turn is the
# query. Below the table stands what the paper claims of its own data, and whether that holds here: methods
# are compared split by split, and "undecided" is what chance could have brought as well. LORETA is compared
# with methods that learn from triplets, as it does. Where classes are known, `ContrastiveSimilarity` and
# linear support vector machines are better: add `contrastive,svm` to the methods. The learning curves are
# among the files:

import matplotlib.pyplot as plt

figure = plt.figure()
figure.figimage(plt.imread(folder / "learning-curves.png"), resize=True)
plt.show()

# %%
# `result.json` holds every number, the parameters and the seeds that repeat them, and how the run compares
# with what the paper claims.

result = json.loads((folder / "result.json").read_text())
for claim in result["claims"]:
    print(f"{claim['claim']}: {claim['numbers']}")

# %%
# The same in Python
# ------------------
#
# Behind the row "LORETA-1" is an estimator in scikit-learn's form. It draws triplets (a query, a document of
# the same class, one of another) and learns a matrix W of rank 20, words × words, such that qᵀ W d ranks the
# documents. W is kept as two thin factors.

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split

from problems.data.docstrings import scipy_documents
from problems.similarity import LoretaSimilarity

documents = scipy_documents()
train, test = train_test_split(
    documents,
    test_size=0.35,
    stratify=[one.subpackage for one in documents],
    random_state=0,
)
y, y_test = ([one.subpackage for one in part] for part in (train, test))
words = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=2)
X = words.fit_transform(one.text for one in train)
X_test = words.transform(one.text for one in test)
model = LoretaSimilarity(rank=20, random_state=0).fit(X, y)
print(f"mean average precision on new documents: {model.score(X_test, y_test):.3f}")

# %%
# Looking at what was learned: the nearest documents to a few queries, by the cosine of their words and by W.

cosine, learned = (X_test @ X.T).toarray(), model.similarity(X_test, X)
for query in (2, 11, 30):
    print(f"\n{test[query].name}")
    for title, scores in (("cosine", cosine[query]), ("learned", learned[query])):
        nearest = [
            train[n].name.removeprefix("scipy.") for n in np.argsort(-scores)[:4]
        ]
        print(f"  {title:8} {', '.join(nearest)}")

# %%
# The three parts
# ---------------
#
# An estimator is a cost on a manifold, and a solver. Everything that follows in these tutorials is about making, and
# exchanging, one of these.

from problems.similarity import ClassTriplets
from rmopt import Problem
from rmopt.costs import TripletSum
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import SGD

n_words = X.shape[1]
problem = Problem(FixedRankEmbedded(n_words, n_words, 20), TripletSum(X, X))
solver = SGD(10.0, max_iter=20_000, sampler=ClassTriplets(np.array(y)))
found = solver.run(problem, problem.manifold.identity(), random_state=0)
print(
    f"{found.steps} steps, of which {found.updates} moved W, in {found.seconds:.1f} s"
)

# %%
# What should hold
# ----------------
#
# LORETA is above the cosine and the two other methods that learn from triplets, by more than the spread of the three
# splits.

claims = {one["claim"]: one["reproduced"] for one in result["claims"]}
assert {"learning-curves.png", "result.json"} <= {
    path.name for path in folder.iterdir()
}
assert claims["(not in the paper) LORETA-1 is above cosine"]
assert all(
    claims[f"LORETA-1 is above {other}"]
    for other in ("naive gradient descent", "passive-aggressive")
)
assert model.score(X_test, y_test) > 0.85
assert found.steps == 20_000
