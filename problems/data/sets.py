"""The data sets that the papers use: what they are, and from which files they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from problems.data.bundles import ClassBundle, MultilabelBundle, Ratings, TagBundle, TaskBundle, stratified
from problems.data.files import read_file, read_table
from problems.data.registry import Source, loader
from problems.data.tags import numbered, post_core
from rmopt.files import Layout, read_arrays

__all__ = [
    "bibtex", "caltech101", "delicious", "digits", "digits_labels", "emotions", "enron", "ml1m", "ml10m_tags",
    "ml100k", "mnist", "news20", "news20_full", "parkinsons", "picture", "scene", "toy_tags",
]  # fmt: skip


NEWS20_FILE = "news20_bydate_cai.npz"
NEWS20_FULL_FILE = "news20_bydate_fullvocab_derived.npz"
NEWSGROUPS = "http://qwone.com/~jason/20Newsgroups/"
CALTECH_FILE, MNIST_FILE = "caltech101_bow1000_derived.npz", "mnist.npz"
MNIST = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
MNIST_DIGEST = "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
CALTECH_CLASSES, CALTECH_IMAGES = 50, 65
BACKGROUND = "BACKGROUND_Google"
_LABELS: Layout = {"y": (int, ("n",)), "class_names": (str, ("classes",))}
GROUPLENS = "https://files.grouplens.org/datasets/movielens"
MULAN = "https://raw.githubusercontent.com/tsoumakas/mulan/43f6389095ad71984264db4387a8074b22bc7d4a/data/multi-label"
ML10M = f"{GROUPLENS}/ml-10m.zip"
ML10M_FILE, ML10M_TEXT = "ml10m_tags.npz", "ml-10M100K/tags.dat"
# The level of the post core that is nearest in size to the data of the ECML/PKDD challenge 2009.
ML10M_CORE = 15
PARKINSONS_FILE, PARKINSONS_TEXT = "parkinsons_telemonitoring.npz", "parkinsons_updrs.data"


@loader(Source(origin="scikit-learn"))
def digits() -> ClassBundle:
    """Load the 1797 handwritten digits of scikit-learn: 64 pixel values in [0, 1], 10 classes.

    The held-out 30 % of every class are drawn once with a fixed seed.

    References
    ----------
    Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI Machine Learning Repository (1998),
    https://doi.org/10.24432/C50P49.

    Examples
    --------
    >>> from problems.data.sets import digits
    >>> bundle = digits()
    >>> bundle.X.shape, bundle.n_classes, int(bundle.test.sum())
    ((1797, 64), 10, 539)
    """
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return ClassBundle("digits", "scikit-learn", X / 16, y.astype(np.int64), stratified(y, 0.3, 0))


def _read_newsgroups(name: str, path: Path, first_label: int = 0) -> ClassBundle:
    X = read_table(path, "X")
    labels: Layout = {"y": (int, ("n",)), "is_test": (bool, ("n",))}
    stored = read_arrays(path, {**labels, "vocabulary_utf8": (str, (X.shape[1],))}, labels)
    if "vocabulary_utf8" in stored:
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        X = X[:, [term not in ENGLISH_STOP_WORDS for term in stored["vocabulary_utf8"].tolist()]]
    return ClassBundle(name, path.name, X, stored["y"] - first_label, stored["is_test"])


def _count_newsgroups(name: str, **options: str) -> ClassBundle:
    """Let scikit-learn fetch 20 Newsgroups, compare its own checksum, and count terms."""
    from sklearn.datasets import fetch_20newsgroups
    from sklearn.feature_extraction.text import CountVectorizer

    train, test = (fetch_20newsgroups(subset=part, shuffle=False) for part in ("train", "test"))
    counts = CountVectorizer(stop_words="english", min_df=2, **options)
    X = csr_array(counts.fit_transform(train.data + test.data), dtype=np.float64)
    X.sum_duplicates()
    y = np.concatenate([train.target, test.target]).astype(np.int64)
    return ClassBundle(name, "scikit-learn", X, y, np.arange(len(y)) >= len(train.target))


@loader(Source((NEWS20_FILE,), NEWSGROUPS), fetch=lambda folder: _count_newsgroups("news20"))
def news20(path: Path) -> ClassBundle:
    """Load the term counts of 20 Newsgroups with the published by-date split: 18846 posts, 7532 held out.

    Read from ``news20_bydate_cai.npz`` (26214 terms) in the data folder; else fetched and counted by scikit-learn (no
    English stop words, terms in at least two posts).

    References
    ----------
    Lang, NewsWeeder: learning to filter netnews, ICML (1995),
    https://doi.org/10.1016/B978-1-55860-377-6.50048-7.
    """
    return _read_newsgroups("news20", path, first_label=1)


@loader(
    Source((NEWS20_FULL_FILE,), NEWSGROUPS),
    fetch=lambda folder: _count_newsgroups("news20-full", token_pattern="[a-z]+"),
)
def news20_full(path: Path) -> ClassBundle:
    """Load 20 Newsgroups with every word of the letters a-z that two posts use and that is no stop word.

    Read from ``news20_bydate_fullvocab_derived.npz``, or fetched, as in `news20`.
    """
    return _read_newsgroups("news20-full", path)


@loader(
    Source(
        (CALTECH_FILE,),
        "https://data.caltech.edu/records/mzrjq-6wc02",
        advice="make it of the images: visual words",
    )
)
def caltech101(path: Path) -> ClassBundle:
    """Load 3219 images of Caltech-101 as counts of 1000 visual words: 50 classes, at most 65 images each.

    The classes are the largest without the background, the images the first of each, as Atzmon et al. (2015)
    have 50 classes with 65 images of Caltech-256. Every fifth image is held out.

    References
    ----------
    Fei-Fei, Fergus and Perona, Learning generative visual models from few training examples, CVPR workshop
    (2004), https://doi.org/10.1109/CVPR.2004.383.
    """
    X, (y, names) = read_table(path, "X"), read_arrays(path, _LABELS).values()
    if len(y) != X.shape[0] or not 0 <= y.min() <= y.max() < len(names):
        raise ValueError(f"y must have {X.shape[0]} labels from 0 to {len(names) - 1}")
    counts = np.bincount(y, minlength=len(names))
    counts[names.tolist().index(BACKGROUND)] = 0
    largest = np.argsort(-counts, kind="stable")[:CALTECH_CLASSES]
    members = [np.flatnonzero(y == label)[:CALTECH_IMAGES] for label in largest]
    labels = np.repeat(np.arange(CALTECH_CLASSES), [len(rows) for rows in members])
    test = np.concatenate([np.arange(len(rows)) % 5 == 4 for rows in members])
    return ClassBundle("caltech101", CALTECH_FILE, csr_array(X[np.concatenate(members)]), labels, test)


@loader(Source((MNIST_FILE,), MNIST, ((MNIST, MNIST_DIGEST),)))
def mnist(path: Path) -> ClassBundle:
    """Load the 70000 handwritten digits of MNIST: 784 pixel values in [0, 1], 10000 images held out.

    Read from ``mnist.npz`` in the data folder, else fetched as Keras has it.

    References
    ----------
    LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, Proceedings of
    the IEEE 86 (1998), https://doi.org/10.1109/5.726791.
    """
    parts = {f"{name}_{part}": (float, None) for part in ("train", "test") for name in "xy"}
    found = read_arrays(path, {"X": (float, None), "y": (int, ("n",)), "n_train": (int, ())}, parts)
    if "X" in found:
        X, y, n_train = found["X"], found["y"], int(found["n_train"])
    else:
        X, y = (np.concatenate([found[f"{name}_train"], found[f"{name}_test"]]) for name in "xy")
        n_train = len(found["y_train"])
    test = np.arange(len(y)) >= n_train
    return ClassBundle("mnist", MNIST_FILE, X.reshape(len(y), -1) / 255.0, y.astype(np.int64), test)


@loader(Source(origin="scikit-learn"))
def digits_labels() -> MultilabelBundle:
    """Load the handwritten digits of scikit-learn with 16 labels, 4 for each: digit, parity, size, loops.

    As the LORETA paper adds the ancestors of a class, each digit gets what it is: even or odd, small (0 to 4) or
    large, and with a closed loop (0, 6, 8, 9) or without one.

    References
    ----------
    Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI Machine Learning Repository (1998),
    https://doi.org/10.24432/C50P49. Shalit, Weinshall and Chechik, Online learning in the embedded manifold of
    low-rank matrices, JMLR 13 (2012), https://jmlr.org/papers/v13/shalit12a.html.

    Examples
    --------
    >>> from problems.data.sets import digits_labels
    >>> bundle = digits_labels()
    >>> bundle.Y.shape, int(bundle.Y.sum(axis=1).min())
    ((1797, 16), 4)
    """
    bundle = digits()
    y = bundle.y
    loop = np.isin(y, (0, 6, 8, 9))
    kinds = (y % 2 == 0, y % 2 == 1, y < 5, y >= 5, loop, ~loop)
    Y = np.column_stack([np.eye(10, dtype=bool)[y], *kinds])
    return MultilabelBundle("digits-labels", bundle.source, bundle.X, csr_array(Y.astype(float)), bundle.test)


def _mulan(
    name: str, *digests: str
) -> Callable[[Callable[..., MultilabelBundle]], Callable[..., MultilabelBundle]]:
    """Make a loader of a set of Mulan, from ``name.npz``, or the files for training and for tests."""
    addresses = (f"{MULAN}/{name}/{name}-{part}.arff" for part in ("test", "train"))
    downloads = tuple((address, f"sha256:{one}") for address, one in zip(addresses, digests, strict=True))
    files = f"{name}.npz", f"{name}-train.arff"
    return loader(Source(files, "https://github.com/tsoumakas/mulan", downloads))


def _read_mulan(name: str, path: Path, n_labels: int) -> MultilabelBundle:
    if path.suffix == ".npz":
        X, Y = read_table(path, "X", ones=True), csr_array(read_table(path, "Y", ones=True))
        n_train = int(read_arrays(path, {"n_train": (int, ())})["n_train"])
    else:
        parts = [_arff(path.with_name(f"{name}-{part}.arff"), n_labels) for part in ("train", "test")]
        join = vstack if issparse(parts[0][0]) else np.vstack
        X, Y, n_train = join([X for X, _ in parts]), vstack([Y for _, Y in parts]), parts[0][0].shape[0]
    return MultilabelBundle(name, path.name, X, Y, np.arange(X.shape[0]) >= n_train)


@_mulan(
    "delicious",
    "2dfb01723a819914b0ca83361177ed413ce3f2169851d9f228d4692915d63944",
    "030186cdb542ebdd32052fcdbb1ebe30115b3a22518c1b4b198c45eb827aebe1",
)
def delicious(path: Path) -> MultilabelBundle:
    """Load Delicious: 16105 web pages, 500 words, 983 tags (19 a page), the first 12920 pages for training.

    References
    ----------
    Tsoumakas, Katakis and Vlahavas, Effective and efficient multilabel classification in domains with large
    number of labels, ECML PKDD workshop on mining multidimensional data (2008).
    """
    return _read_mulan("delicious", path, n_labels=983)


@_mulan(
    "bibtex",
    "9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922",
    "8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174",
)
def bibtex(path: Path) -> MultilabelBundle:
    """Load Bibtex: 7395 references, 1836 words, 159 tags.

    References
    ----------
    Katakis, Tsoumakas and Vlahavas, Multilabel text classification for automated tag suggestion, ECML PKDD
    Discovery Challenge (2008).
    """
    return _read_mulan("bibtex", path, n_labels=159)


@_mulan(
    "enron",
    "2f3aad54a8f54caaab4ab01246fe9dd385ba944a2633028f52747b57eac5474e",
    "2988cefc1cdf7a8004a20ef84615cc8fa1b5d7434c16687283b41454e2d9d194",
)
def enron(path: Path) -> MultilabelBundle:
    """Load Enron: 1702 letters, 1001 words, 53 labels.

    References
    ----------
    Klimt and Yang, The Enron corpus: a new dataset for email classification research, ECML (2004),
    https://doi.org/10.1007/978-3-540-30115-8_22.
    """
    return _read_mulan("enron", path, n_labels=53)


@_mulan(
    "emotions",
    "f13d4b746b7b5c8eb484bd751d6ac463d4560dff998a93516a5c1fe35daf6c8f",
    "bbe704106c79bb8fb99c1d1d2e9bde081d6a2daeb01f100862f11fd91a3c1f98",
)
def emotions(path: Path) -> MultilabelBundle:
    """Load Emotions: 593 pieces of music, 72 features, 6 labels.

    References
    ----------
    Trohidis, Tsoumakas, Kalliris and Vlahavas, Multi-label classification of music into emotions, ISMIR (2008).
    """
    return _read_mulan("emotions", path, n_labels=6)


@_mulan(
    "scene",
    "ea38d20296b3ff7e220f477a3b802a9bcb2d768881fe6ee163efbc97ea527a42",
    "b53ba93bdf412de922e3960389bcee24744fa3e872ce610511fc1d750888b64d",
)
def scene(path: Path) -> MultilabelBundle:
    """Load Scene: 2407 images, 294 features, 6 labels.

    References
    ----------
    Boutell, Luo, Shen and Brown, Learning multi-label scene classification, Pattern Recognition 37 (2004),
    https://doi.org/10.1016/j.patcog.2004.03.009.
    """
    return _read_mulan("scene", path, n_labels=6)


def _movielens(
    name: str, published: str, digest: str
) -> Callable[[Callable[..., Ratings]], Callable[..., Ratings]]:
    address = f"{GROUPLENS}/{Path(published).parent}.zip"
    return loader(Source((f"{name}.npz", published), address, ((address, f"sha256:{digest}"),)))


def _read_movielens(name: str, path: Path) -> Ratings:
    """Read ratings from ``name.npz``, or from a file as GroupLens publishes it."""
    stored = path.suffix == ".npz"
    if stored:
        layout: Layout = {"user": (int, ("n",)), "item": (int, ("n",)), "rating": (float, ("n",))}
        dated: Layout = {**layout, "timestamp": (int, ("n",))}
        users, films, values, *times = read_arrays(path, dated, layout).values()
    else:
        users, films, values, *times = read_file(path).frame.to_numpy(np.float64).T
    # Films without ratings are left out: the numbers become 0, 1, 2, …
    (known, rows), (users, columns) = (np.unique(ids, return_inverse=True) for ids in (films, users))
    shape, source = (len(known), len(users)), path.name if stored else "/".join(path.parts[-2:])
    return Ratings(
        name, source, rows.astype(np.int32), columns.astype(np.int32), values, shape, (1.0, 5.0),
        row_names=known.astype(np.int64), column_names=users.astype(np.int64),
        times=times[0].astype(np.int64) if times else None,
    )  # fmt: skip


@_movielens("ml100k", "ml-100k/u.data", "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229")
def ml100k(path: Path) -> Ratings:
    """Load MovieLens-100K: 1682 films (rows), 943 users (columns), 100000 dated ratings from 1 to 5.

    References
    ----------
    Harper and Konstan, The MovieLens datasets: history and context, ACM Transactions on Interactive Intelligent
    Systems 5 (2015), https://doi.org/10.1145/2827872.
    """
    return _read_movielens("ml100k", path)


@_movielens("ml1m", "ml-1m/ratings.dat", "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20")
def ml1m(path: Path) -> Ratings:
    """Load MovieLens-1M: 3706 films (rows), 6040 users (columns), 1000209 ratings from 1 to 5.

    References
    ----------
    Harper and Konstan, The MovieLens datasets: history and context, ACM Transactions on Interactive Intelligent
    Systems 5 (2015), https://doi.org/10.1145/2827872.
    """
    return _read_movielens("ml1m", path)


@loader(Source(origin="scikit-learn"))
def picture() -> Ratings:
    """Load a photograph of scikit-learn's: 427 rows, its 640 columns in red, green and blue, from 0 to 1.

    References
    ----------
    Pedregosa et al., Scikit-learn: machine learning in Python, JMLR 12 (2011),
    https://jmlr.org/papers/v12/pedregosa11a.html.

    Examples
    --------
    >>> from problems.data.sets import picture
    >>> ratings = picture()
    >>> ratings.shape, ratings.limits
    ((427, 1920), (0.0, 1.0))
    """
    from sklearn.datasets import load_sample_image

    colours = load_sample_image("china.jpg").astype(float) / 255.0
    height, width, _ = colours.shape
    pixels = np.arange(height * width).reshape(height, width)
    table = np.hstack([colours[:, :, colour] for colour in range(3)])
    rows, columns = np.indices(table.shape, dtype=np.int32)
    return Ratings(
        "picture", "scikit-learn, china.jpg", rows.ravel(), columns.ravel(), table.ravel(), table.shape,
        (0.0, 1.0), np.hstack([pixels] * 3).ravel(),
    )  # fmt: skip


@loader(
    Source(
        (PARKINSONS_FILE, PARKINSONS_TEXT),
        "https://archive.ics.uci.edu/dataset/189",
        advice=f"put {PARKINSONS_TEXT} there from https://archive.ics.uci.edu/dataset/189",
    )
)
def parkinsons(path: Path) -> TaskBundle:
    """Load Parkinsons telemonitoring: 42 patients (tasks), 5875 recordings, 19 features, the label total_UPDRS.

    The features are those of Mishra et al. 2019: all columns but the patient and the two UPDRS scores, as they are.

    References
    ----------
    Tsanas, Little, McSharry and Ramig, Accurate telemonitoring of Parkinson's disease progression by noninvasive
    speech tests, IEEE Transactions on Biomedical Engineering 57 (2010),
    https://doi.org/10.1109/TBME.2009.2036000.
    """
    if path.name == PARKINSONS_FILE:
        table = read_arrays(path, {"X": (float, (None, 22))})["X"]
    else:
        table = read_file(path).frame.to_numpy(np.float64)
    if table.shape[1] != 22:
        raise ValueError(f"it has {table.shape[1]} columns, not 22")
    _, task = np.unique(table[:, 0], return_inverse=True)
    features = np.delete(table, [0, 4, 5], axis=1)
    return TaskBundle("parkinsons", path.name, features, table[:, 5].copy(), task.astype(np.int64))


@loader(
    Source((ML10M_FILE, "tags.dat", ML10M_TEXT), ML10M, ((ML10M, "md5:ce571fd55effeba0271552578f2648bd"),))
)
def ml10m_tags(path: Path) -> TagBundle:
    """Load the tags of MovieLens-10M in lower case, and of them the post core at level 15: 107 users, 162 movies.

    References
    ----------
    Harper and Konstan, The MovieLens datasets: history and context, ACM Transactions on Interactive Intelligent
    Systems 5 (2015), https://doi.org/10.1145/2827872.
    """
    if path.name == ML10M_FILE:
        columns = {name: (int, ("n",)) for name in ("user", "movie", "tag")}
        stored = read_arrays(path, {**columns, "tag_names_utf8": (str, (None,))})
        if stored["tag"].min(initial=0) < 0:
            raise ValueError("it has negative numbers of tags")
        users, movies, texts = stored["user"], stored["movie"], stored["tag_names_utf8"][stored["tag"]]
    else:
        frame = read_file(path).frame
        users, movies, texts = (frame[name].to_numpy() for name in ("user", "item", "tag"))
    known, tags = np.unique([text.strip().lower() for text in texts], return_inverse=True)
    core = post_core(np.column_stack([users, movies, tags]).astype(np.int64), ML10M_CORE)
    if not len(core):
        raise ValueError(f"it has no post core at level {ML10M_CORE}")
    triples, names = numbered(core)
    return TagBundle("ml10m-tags", path.name, triples, tuple(str(known[tag]) for tag in names[2]))


@loader(Source(origin="made up"))
def toy_tags() -> TagBundle:
    """Make tags of 40 users and 60 items: each has a place in the plane, and tags come from the nearest of 50.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

    Examples
    --------
    >>> from problems.data.sets import toy_tags
    >>> tags = toy_tags()
    >>> tags.counts, tags.tag_names[tags.triples[0, 2]]
    ((40, 60, 47), 'tag 32')
    """
    rng = np.random.default_rng(0)
    users, items, tags = (rng.standard_normal((count, 2)) for count in (40, 60, 50))
    triples: list[Any] = []
    for user, item in np.argwhere(rng.random((40, 60)) < 0.2):
        distances = ((users[user] - tags) ** 2).sum(axis=1) + ((items[item] - tags) ** 2).sum(axis=1)
        noisy = distances + 0.5 * rng.gumbel(size=len(tags))
        triples += [(user, item, tag) for tag in np.argsort(noisy)[: rng.integers(2, 5)]]
    made, names = numbered(np.array(triples))
    return TagBundle("toy-tags", "made up", made, tuple(f"tag {tag}" for tag in names[2]))


def _arff(path: Path, n_labels: int) -> tuple[Any, Any]:
    """Return the features and the labels, which are the last columns, of an ARFF file, dense or sparse."""
    head, _, body = path.read_text(encoding="utf-8").lower().partition("@data")
    lines = [line for line in body.splitlines() if line.strip()]
    if lines[0].startswith("{"):
        cells = [line.strip("{} ").replace(",", " ").split() for line in lines]
        numbers = np.array([cell for row in cells for cell in row], dtype=np.float64).reshape(-1, 2)
        rows = np.repeat(np.arange(len(cells)), [len(row) // 2 for row in cells])
        shape = len(lines), head.count("@attribute ")
        table = csr_array((numbers[:, 1], (rows, numbers[:, 0].astype(np.int32))), shape=shape)
        table.sum_duplicates()
    else:
        table = np.loadtxt(lines, delimiter=",", ndmin=2)
    return table[:, :-n_labels], csr_array(table[:, -n_labels:])
