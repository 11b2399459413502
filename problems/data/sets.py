"""The data sets of the papers, and their files.

References
----------
Digits: Alpaydin and Kaynak, UCI Machine Learning Repository (1998), https://doi.org/10.24432/C50P49. MNIST: LeCun,
Bottou, Bengio and Haffner, Proceedings of the IEEE 86 (1998), https://doi.org/10.1109/5.726791. 20 Newsgroups: Lang,
ICML (1995), https://doi.org/10.1016/B978-1-55860-377-6.50048-7. Caltech-101: Fei-Fei, Fergus and Perona, CVPR
workshop (2004), https://doi.org/10.1109/CVPR.2004.383. Delicious: Tsoumakas, Katakis and Vlahavas, ECML PKDD workshop
(2008). Bibtex: Katakis, Tsoumakas and Vlahavas, ECML PKDD Discovery Challenge (2008). Enron: Klimt and Yang, ECML
(2004), https://doi.org/10.1007/978-3-540-30115-8_22. Emotions: Trohidis, Tsoumakas, Kalliris and Vlahavas, ISMIR
(2008). Scene: Boutell, Luo, Shen and Brown, Pattern Recognition 37 (2004),
https://doi.org/10.1016/j.patcog.2004.03.009. MovieLens: Harper and Konstan, ACM Transactions on Interactive
Intelligent Systems 5 (2015), https://doi.org/10.1145/2827872. Parkinsons: Tsanas, Little, McSharry and Ramig, IEEE
Transactions on Biomedical Engineering 57 (2010), https://doi.org/10.1109/TBME.2009.2036000.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array, issparse, vstack
from sklearn import datasets
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from problems.data.bundles import (
    Bundle,
    ClassBundle,
    MultilabelBundle,
    Ratings,
    TagBundle,
    TaskBundle,
    stratified,
)
from problems.data.files import matrix_in, read_file
from problems.data.registry import Source
from problems.data.tables import bundle_of
from rmopt.core.ambient import Array
from rmopt.core.matrices import as_rows
from rmopt.files import read_arrays

__all__ = [
    "bibtex", "caltech101", "delicious", "digits", "digits_labels", "emotions", "enron", "ml1m", "ml10m_tags",
    "ml100k", "mnist", "news20", "news20_full", "parkinsons", "picture", "scene", "toy_tags",
]  # fmt: skip


B = TypeVar("B", bound=Bundle)
NEWS20_FILE, NEWS20_FULL_FILE = "news20_bydate_cai.npz", "news20_bydate_fullvocab_derived.npz"
NEWSGROUPS = "http://qwone.com/~jason/20Newsgroups/"
MNIST = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
CALTECH = "https://data.caltech.edu/records/mzrjq-6wc02"
CALTECH_CLASSES, CALTECH_IMAGES = 50, 65
BACKGROUND = "BACKGROUND_Google"
MOVIELENS = "https://files.grouplens.org/datasets/movielens"
MULAN = "https://raw.githubusercontent.com/tsoumakas/mulan/43f6389095ad71984264db4387a8074b22bc7d4a/data/multi-label"
# The level of the post core closest in size to the data of the ECML/PKDD challenge 2009.
ML10M_CORE = 15


def _own_form(name: str, path: Path, kind: type[B], **about: Any) -> B:
    """Read a file like a user's, under the name of a data set."""
    bundle: B = bundle_of(read_file(path), {}, kind)
    return replace(bundle, name=name, source=path.name, notes=(), **about)


@Source("scikit-learn")
def digits() -> ClassBundle:
    """Load the 1797 handwritten digits of scikit-learn: 64 pixel values in [0, 1], 10 classes.

    The held-out 30 % of every class are drawn once with a fixed seed.

    Examples
    --------
    >>> from problems.data.sets import digits
    >>> bundle = digits()
    >>> bundle.X.shape, bundle.n_classes, int(bundle.test.sum())
    ((1797, 64), 10, 539)
    """
    X, y = datasets.load_digits(return_X_y=True)
    return ClassBundle("digits", "scikit-learn", X / 16, y.astype(np.int64), stratified(y, 0.3, 0))


def _count_newsgroups(name: str, **options: str) -> ClassBundle:
    """Let scikit-learn fetch 20 Newsgroups, compare its own checksum, and count terms."""
    train, test = (datasets.fetch_20newsgroups(subset=part, shuffle=False) for part in ("train", "test"))
    counts = CountVectorizer(stop_words="english", min_df=2, **options)
    X = as_rows(counts.fit_transform(train.data + test.data), "the counts")
    y = np.concatenate([train.target, test.target]).astype(np.int64)
    return ClassBundle(name, "scikit-learn", X, y, np.arange(len(y)) >= len(train.target))


@Source(NEWSGROUPS, (NEWS20_FILE,), fetch=lambda: _count_newsgroups("news20"))
def news20(path: Path) -> ClassBundle:
    """Load the term counts of 20 Newsgroups with the published by-date split: 18846 posts, 7532 held out.

    Read from ``news20_bydate_cai.npz`` (26214 terms) in the data folder, or fetched and counted by scikit-learn (no
    English stop words, terms in at least two posts).
    """
    return _own_form("news20", path, ClassBundle, split_said=False)


@Source(
    NEWSGROUPS, (NEWS20_FULL_FILE,), fetch=lambda: _count_newsgroups("news20-full", token_pattern="[a-z]+")
)
def news20_full(path: Path) -> ClassBundle:
    """Load 20 Newsgroups with every word of the letters a-z in at least two posts, except stop words.

    Read from ``news20_bydate_fullvocab_derived.npz``, or fetched, as in `news20`.
    """
    bundle = _own_form("news20-full", path, ClassBundle, split_said=False)
    words = read_arrays(path, {"vocabulary_utf8": (str, (bundle.X.shape[1],))})["vocabulary_utf8"]
    return replace(bundle, X=bundle.X[:, [word not in ENGLISH_STOP_WORDS for word in words.tolist()]])


@Source(CALTECH, ("caltech101_bow1000_derived.npz",))
def caltech101(path: Path) -> ClassBundle:
    """Load 3219 images of Caltech-101 as counts of 1000 visual words: 50 classes, at most 65 images each.

    The classes are the largest without the background, the images the first of each, as Atzmon et al. (2015)
    have 50 classes with 65 images of Caltech-256. Every fifth image is held out.
    """
    arrays = read_arrays(path)
    X, y, names = matrix_in(arrays, "X"), arrays["y"], arrays["class_names"].tolist()
    counts = np.bincount(y, minlength=len(names))
    counts[names.index(BACKGROUND)] = 0
    largest = np.argsort(-counts, kind="stable")[:CALTECH_CLASSES]
    members = [np.flatnonzero(y == label)[:CALTECH_IMAGES] for label in largest]
    labels = np.repeat(np.arange(CALTECH_CLASSES), [len(rows) for rows in members])
    test = np.concatenate([np.arange(len(rows)) % 5 == 4 for rows in members])
    return ClassBundle("caltech101", path.name, csr_array(X[np.concatenate(members)]), labels, test)


@Source(MNIST, ("mnist.npz",), [MNIST])
def mnist(path: Path) -> ClassBundle:
    """Load the 70000 handwritten digits of MNIST: 784 pixel values in [0, 1], 10000 images held out.

    Read from ``mnist.npz`` in the data folder, or fetched in Keras's form.
    """
    arrays = read_arrays(path)
    if "x_train" in arrays:
        X, y = (np.concatenate([arrays[f"{name}_train"], arrays[f"{name}_test"]]) for name in "xy")
        n_train = len(arrays["y_train"])
    else:
        X, y, n_train = arrays["X"], arrays["y"], int(arrays["n_train"])
    test = np.arange(len(y)) >= n_train
    return ClassBundle("mnist", path.name, X.reshape(len(y), -1) / 255.0, y.astype(np.int64), test)


@Source("scikit-learn")
def digits_labels() -> MultilabelBundle:
    """Load the handwritten digits of scikit-learn with 16 labels, 4 for each: digit, parity, size, loops.

    Similar to the ancestors of a class in the LORETA paper, each digit gets its properties: even or odd, small (0 to
    4) or large, and with a closed loop (0, 6, 8, 9) or without one.
    """
    bundle = digits()
    y = bundle.y
    loop = np.isin(y, (0, 6, 8, 9))
    kinds = (y % 2 == 0, y % 2 == 1, y < 5, y >= 5, loop, ~loop)
    Y = np.column_stack([np.eye(10, dtype=bool)[y], *kinds])
    return MultilabelBundle("digits-labels", bundle.source, bundle.X, csr_array(Y.astype(float)), bundle.test)


def _mulan(name: str, n_labels: int, holds: str) -> Any:
    """Return the loader of a Mulan data set, from ``NAME.npz`` or the published files for tests and training."""

    def read(path: Path) -> MultilabelBundle:
        if path.suffix == ".npz":
            return _own_form(name, path, MultilabelBundle, split_said=False)
        train, test = (_arff(path.with_name(f"{name}-{part}.arff")) for part in ("train", "test"))
        whole = as_rows(vstack([train, test]), "the table") if issparse(train) else np.vstack([train, test])
        X, Y = whole[:, :-n_labels], whole[:, -n_labels:]
        return MultilabelBundle(name, path.name, X, Y, np.arange(whole.shape[0]) >= train.shape[0])

    read.__name__ = read.__qualname__ = name
    read.__doc__ = f"Load {name.title()}: {holds}."
    addresses = [f"{MULAN}/{name}/{name}-{part}.arff" for part in ("test", "train")]
    return Source("https://github.com/tsoumakas/mulan", (f"{name}.npz", f"{name}-train.arff"), addresses)(
        read
    )


def _arff(path: Path) -> Any:
    """Return the table of an ARFF file, dense or sparse."""
    head, _, body = path.read_text(encoding="utf-8").lower().partition("@data")
    lines = [line for line in body.splitlines() if line.strip()]
    if not lines[0].startswith("{"):
        return np.loadtxt(lines, delimiter=",", ndmin=2)
    cells = [line.strip("{} ").replace(",", " ").split() for line in lines]
    numbers = np.array([cell for row in cells for cell in row], dtype=np.float64).reshape(-1, 2)
    rows = np.repeat(np.arange(len(cells)), [len(row) // 2 for row in cells])
    shape = len(lines), head.count("@attribute ")
    return csr_array((numbers[:, 1], (rows, numbers[:, 0].astype(np.int32))), shape=shape)


delicious = _mulan(
    "delicious", 983, "16105 web pages, 500 words, 983 tags (19 a page), the first 12920 for training"
)
bibtex = _mulan("bibtex", 159, "7395 references, 1836 words, 159 tags")
enron = _mulan("enron", 53, "1702 letters, 1001 words, 53 labels")
emotions = _mulan("emotions", 6, "593 pieces of music, 72 features, 6 labels")
scene = _mulan("scene", 6, "2407 images, 294 features, 6 labels")


@Source(f"{MOVIELENS}/ml-100k.zip", ("ml100k.npz", "ml-100k/u.data"), [f"{MOVIELENS}/ml-100k.zip"])
def ml100k(path: Path) -> Ratings:
    """Load MovieLens-100K: 1682 films (rows), 943 users (columns), 100000 dated ratings from 1 to 5."""
    return _own_form("ml100k", path, Ratings, limits=(1.0, 5.0))


@Source(f"{MOVIELENS}/ml-1m.zip", ("ml1m.npz", "ml-1m/ratings.dat"), [f"{MOVIELENS}/ml-1m.zip"])
def ml1m(path: Path) -> Ratings:
    """Load MovieLens-1M: 3706 films (rows), 6040 users (columns), 1000209 ratings from 1 to 5."""
    return _own_form("ml1m", path, Ratings, limits=(1.0, 5.0))


@Source("scikit-learn")
def picture() -> Ratings:
    """Load a photograph from scikit-learn: 427 rows, its 640 columns in red, green and blue, from 0 to 1."""
    colours = datasets.load_sample_image("china.jpg").astype(float) / 255.0
    height, width, _ = colours.shape
    pixels = np.arange(height * width).reshape(height, width)
    table = np.hstack([colours[:, :, colour] for colour in range(3)])
    rows, columns = np.indices(table.shape, dtype=np.int32)
    return Ratings(
        "picture", "scikit-learn, china.jpg", rows.ravel(), columns.ravel(), table.ravel(), table.shape,
        (0.0, 1.0), np.hstack([pixels] * 3).ravel(),
    )  # fmt: skip


@Source("https://archive.ics.uci.edu/dataset/189", ("parkinsons_telemonitoring.npz", "parkinsons_updrs.data"))
def parkinsons(path: Path) -> TaskBundle:
    """Load Parkinsons telemonitoring: 42 patients (tasks), 5875 recordings, 19 features, the label total_UPDRS.

    The features are those of Mishra et al. 2019: all columns except the patient and the two UPDRS scores, unscaled.
    """
    table = read_file(path)
    table = table.frame.to_numpy(np.float64) if table.X is None else table.X
    if table.shape[1] != 22:
        raise ValueError(f"it has {table.shape[1]} columns, not 22")
    _, task = np.unique(table[:, 0], return_inverse=True)
    features = np.delete(table, [0, 4, 5], axis=1)
    return TaskBundle("parkinsons", path.name, features, table[:, 5].copy(), task.astype(np.int64))


def post_core(triples: Array, level: int) -> Array:
    """Return the largest part in which every user, item and tag occurs in at least `level` posts.

    Parameters
    ----------
    triples : array, shape (N, 3)
    level : int

    See Jäschke, Marinho, Hotho, Schmidt-Thieme and Stumme, Tag recommendations in social bookmarking systems, AI
    Communications 21 (2008), https://doi.org/10.3233/AIC-2008-0438.
    """
    triples = np.unique(triples, axis=0)
    while len(triples):
        posts = np.unique(triples[:, :2], axis=0)
        keep = np.ones(len(triples), dtype=bool)
        # A tag occurs once in a post, a user or an item once with each post.
        for column, table in ((0, posts), (1, posts), (2, triples)):
            names, counts = np.unique(table[:, column], return_counts=True)
            keep &= np.isin(triples[:, column], names[counts >= level])
        if keep.all():
            break
        triples = triples[keep]
    return triples


def numbered(triples: Array) -> tuple[Array, list[Array]]:
    """Return the triples with users, items and tags numbered from 0, and their names.

    Parameters
    ----------
    triples : array, shape (n, 3)
        Users, items, tags.

    Returns
    -------
    int array, shape (n, 3)
    list of array
        The sorted users, items and tags.
    """
    names, numbers = zip(*(np.unique(column, return_inverse=True) for column in triples.T), strict=True)
    return np.column_stack(numbers).astype(np.int64), list(names)


@Source(
    f"{MOVIELENS}/ml-10m.zip",
    ("ml10m_tags.npz", "tags.dat", "ml-10M100K/tags.dat"),
    [f"{MOVIELENS}/ml-10m.zip"],
)
def ml10m_tags(path: Path) -> TagBundle:
    """Load the tags of MovieLens-10M in lower case, at post core level 15: 107 users, 162 movies."""
    if path.suffix == ".npz":
        columns = {name: (int, ("n",)) for name in ("user", "movie", "tag")}
        users, movies, tags, texts = read_arrays(path, {**columns, "tag_names_utf8": (str, (None,))}).values()
        texts = texts[tags]
    else:
        users, movies, texts = (read_file(path).frame[name].to_numpy() for name in ("user", "item", "tag"))
    known, tags = np.unique([text.strip().lower() for text in texts], return_inverse=True)
    core = post_core(np.column_stack([users, movies, tags]).astype(np.int64), ML10M_CORE)
    if not len(core):
        raise ValueError(f"it has no post core at level {ML10M_CORE}")
    triples, names = numbered(core)
    return TagBundle("ml10m-tags", path.name, triples, tuple(str(known[tag]) for tag in names[2]))


@Source("made up")
def toy_tags() -> TagBundle:
    """Generate tags of 40 users and 60 items: each has a place in the plane, and posts have the nearest of 50.

    As in Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015).
    """
    rng = np.random.default_rng(0)
    users, items, tags = (rng.standard_normal((count, 2)) for count in (40, 60, 50))
    triples: list[Any] = []
    for user, item in np.argwhere(rng.random((40, 60)) < 0.2):
        distances = ((users[user] - tags) ** 2).sum(axis=1) + ((items[item] - tags) ** 2).sum(axis=1)
        noisy = distances + 0.5 * rng.gumbel(size=len(tags))
        triples += [(user, item, tag) for tag in np.argsort(noisy)[: rng.integers(2, 5)]]
    dense, names = numbered(np.array(triples))
    return TagBundle("toy-tags", "made up", dense, tuple(f"tag {tag}" for tag in names[2]))
