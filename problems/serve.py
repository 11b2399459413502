"""The pages of ``rmopt serve``: search in an index of texts, or recommendations of a model."""

import socket
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from zipfile import is_zipfile

from problems import subspace
from problems.serving import Searcher, SimilarityIndex, make_app
from problems.serving.index import FILE
from problems.serving.web import HERE
from problems.subspace.completer import CompletionModel
from problems.subspace.page import ItemSearch
from problems.validation import package
from rmopt.errors import InvalidInputError
from rmopt.files import load_arrays

# The name of a model from `rmopt fit`.
MODEL = "model.npz"
COMPLETERS = {
    name: kind
    for name, kind in (vars(subspace.baselines) | vars(subspace)).items()
    if isinstance(kind, type) and issubclass(kind, CompletionModel)
}
# The largest number of connections; more are asked to retry.
CONNECTIONS = 1000


def opened(path: Path) -> SimilarityIndex | Searcher:
    """Return the object to search: the index in a folder, or the model in a file or a folder.

    Raises
    ------
    InvalidInputError
        If the model makes no recommendations.
    StorageError
        If nothing is there, or it is damaged.
    """
    if (path / FILE).is_file():
        return SimilarityIndex.load(path)
    file = path / MODEL if path.is_dir() else path
    if file.is_file() and file.suffix != ".npz" and not is_zipfile(file):
        first = f"first rmopt fit completion {file} --out films"
        raise InvalidInputError(f"{file} is no folder that rmopt fit wrote, nor a saved model; {first}.")
    kind = load_arrays(file)[1].get("kind")
    if kind not in COMPLETERS:
        raise InvalidInputError(
            f"{file} holds a {kind}, which has nothing to show by itself: make an index of texts by "
            "model.index(X, texts=…, vectorizer=…).save(FOLDER), or learn recommendations by rmopt fit completion."
        )
    return ItemSearch(COMPLETERS[kind].load(file))


def serve(path: Path, host: str, port: int, say: Callable[[str], object]) -> None:
    """Serve the index or model at a path until the process is interrupted. `say` is called with the address."""
    uvicorn = package("uvicorn", "rmopt[serve]", instead="query the model from Python")
    name = f"[{host}]" if ":" in host else host
    # For other machines the host names in requests are unknown here.
    app = make_app(opened(path), path.resolve().name, ("*",) if host in ("0.0.0.0", "::") else (*HERE, name))
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen at {host}, port {port} ({error.strerror or error}); choose another --host or --port."
        ) from error
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, server_header=False, lifespan="off",
        limit_concurrency=CONNECTIONS, timeout_graceful_shutdown=0,
    )  # fmt: skip
    with closing(listener), suppress(KeyboardInterrupt):
        say(f"{path} is at http://{name}:{listener.getsockname()[1]}/ until Ctrl-C.")
        uvicorn.Server(config).run(sockets=[listener])
