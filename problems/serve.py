"""What ``rmopt serve`` shows: an index of texts, or a model that recommends."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from problems import subspace
from problems.serving import Searcher, SimilarityIndex, make_server
from problems.serving.index import ABOUT
from problems.subspace.completer import CompletionModel
from problems.subspace.page import ItemSearch
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import load_arrays

# What `rmopt fit` calls a model.
MODEL = "model.npz"
COMPLETERS = {
    name: kind
    for name, kind in vars(subspace).items()
    if isinstance(kind, type) and issubclass(kind, CompletionModel)
}


def opened(path: Path) -> SimilarityIndex | Searcher:
    """Return what is to be searched: the index in a folder, or the model in a file or a folder.

    Raises
    ------
    InvalidInputError
        When the model is one that recommends nothing.
    StorageError
        When nothing is there, or it is damaged.
    """
    if not path.exists():
        raise StorageError(f"{path} does not exist; check the path.")
    if (path / ABOUT).is_file():
        return SimilarityIndex.load(path)
    file = path / MODEL if path.is_dir() else path
    # One that ends in .npz and is no archive is damaged, which load_arrays says.
    if not (file.is_file() and (file.suffix == ".npz" or zipfile.is_zipfile(file))):
        raise InvalidInputError(
            f"{path} is no model: it must be a folder with {MODEL}, as rmopt fit completion FILE writes it, or with "
            f"{ABOUT}, as SimilarityIndex.save writes it; or such a {MODEL}."
        )
    kind = load_arrays(file)[1].get("kind")
    if kind not in COMPLETERS:
        raise InvalidInputError(
            f"{file} holds a {kind}, which has nothing to show by itself: of a model of texts make an index by "
            "model.index(X, texts=…, vectorizer=…).save(FOLDER), and serve the folder; recommendations are made by "
            f"{', '.join(sorted(COMPLETERS))}."
        )
    return ItemSearch(COMPLETERS[kind].load(file))


def serve(path: Path, host: str, port: int, said: Callable[[str], None]) -> None:
    """Serve what is at a path until the process is interrupted; `said` is called with the address."""
    searched = opened(Path(path))
    with make_server(searched, host, port, title=Path(path).resolve().name) as server:
        said(f"http://{host}:{server.server_address[1]}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            # The way to end it.
            return
