"""What ``rmopt fit`` runs on rows with classes or labels: one model is learned from files that no memory holds."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from sklearn.feature_extraction.text import HashingVectorizer
from typer import Argument, Option

from problems.data import read_texts, stream
from problems.loreta import Loreta
from problems.options import launched
from problems.ranking import LoretaLabelRanker
from problems.similarity import LoretaSimilarity
from problems.threads import threads_of
from rmopt.core import InvalidInputError
from rmopt.experiments import Outcome, Run

Files = Annotated[
    Path,
    Argument(
        metavar="FILES",
        help="A file, or a folder with .svmlight, .npz, .csv or .parquet files, or a folder of texts for each class.",
    ),
]
Features = Annotated[
    int | None,
    Option("--n-features", min=1, help="Needed for .svmlight; texts are hashed to 262,144 unless given."),
]
Rank = Annotated[int | None, Option(min=1, help="The rank of the model; unless given the data decide it.")]
StepSize = Annotated[
    float | None, Option(help="The step size; unless given it follows the lengths of the rows of each chunk.")
]
Epochs = Annotated[int, Option("--epochs", min=1, help="Passes over the files.")]
BatchSize = Annotated[int, Option(min=1, help="Rows in memory at a time.")]
Shuffle = Annotated[
    int,
    Option("--shuffle-buffer", min=0, help="Rows in memory that are put in random order; 0: as they lie."),
]
OneBased = Annotated[bool, Option("--one-based", help="Features of .svmlight files count from 1.")]
Jobs = Annotated[int, Option("--n-jobs", help="Threads that learn one model; -1: all cores.")]
Resume = Annotated[bool, Option("--resume", help="Go on from the checkpoint in the --out folder.")]
# The options that say how files are read.
OF_THE_STREAM = ("n_features", "epochs", "batch_size", "shuffle_buffer", "one_based")


def similarity(
    run: Run,
    files: Files,
    *,
    n_features: Features = None,
    rank: Rank = None,
    step_size: StepSize = None,
    steps_per_row: Annotated[float, Option(help="Triplets that are learned for each row of a chunk.")] = 10.0,
    psd: Annotated[bool, Option("--psd", help="Learn a positive semidefinite matrix.")] = False,
    init: Annotated[
        str, Option(help="The start: gaussian, or identity for rows with the important features first.")
    ] = "gaussian",
    epochs: Epochs = 1,
    batch_size: BatchSize = 10_000,
    shuffle_buffer: Shuffle = 0,
    one_based: OneBased = False,
    n_jobs: Jobs = 1,
    resume: Resume = False,
) -> Outcome:
    """Learn a similarity from rows with classes, chunk by chunk, and write model.npz; of texts also an index.

    Texts are files in a folder for each class, or a column called text beside one called label; rmopt serve searches
    them by the index.

    A checkpoint is written every half minute; with --resume and the same --out folder a run that was killed goes on
    from it, and ends with the same bits. LoretaSimilarity.load reads the model. Under mpirun the processes share the
    files, of which there must be as many or more, and learn the one model together.
    """
    model = LoretaSimilarity(rank, step_size=step_size, psd=psd, init=init, n_jobs=n_jobs)
    return _fitted(run, model, locals(), steps_per_row=steps_per_row)


def ranking(
    run: Run,
    files: Annotated[
        Path, Argument(metavar="FILES", help="A file, or a folder with .svmlight or .npz files.")
    ],
    *,
    n_features: Features = None,
    rank: Rank = None,
    step_size: StepSize = None,
    epochs: Epochs = 1,
    batch_size: BatchSize = 10_000,
    shuffle_buffer: Shuffle = 0,
    one_based: OneBased = False,
    n_jobs: Jobs = 1,
    resume: Resume = False,
) -> Outcome:
    """Learn to rank labels from rows with several labels, chunk by chunk, and write model.npz.

    Labels are numbers of columns, from 0; new ones may come at any time. A checkpoint is written every half minute;
    with --resume and the same --out folder a run that was killed goes on from it, and ends with the same bits.
    LoretaLabelRanker.load reads the model. Under mpirun the processes share the files, of which there must be as
    many or more, and learn the one model together.
    """
    model = LoretaLabelRanker(rank, step_size=step_size, n_jobs=n_jobs)
    return _fitted(run, model, locals())


def _fitted(run: Run, model: Loreta, given: dict[str, Any], **how: Any) -> Outcome:
    """Learn files from the checkpoint of the output folder on, and write the model there; all options are `given`."""
    together, resume, asked = launched(), given["resume"], {name: given[name] for name in OF_THE_STREAM}
    chunks = stream(
        given["files"], n_features=asked["n_features"], batch_size=asked["batch_size"], n_epochs=asked["epochs"],
        shuffle_buffer=asked["shuffle_buffer"], random_state=run.seed, zero_based=not asked["one_based"],
        multilabel=isinstance(model, LoretaLabelRanker),
    ).dealt(together.rank, together.size)  # fmt: skip
    # All keep what they save in the folder of the first process.
    run = replace(run, out=together.first(run.out), quiet=run.quiet or together.rank > 0)
    checkpoint, path = run.path("checkpoint.npz"), run.path("model.npz")
    saved = list(checkpoint.parent.glob("checkpoint*.npz"))
    if saved and not resume:
        raise InvalidInputError(
            f"{checkpoint} is of an earlier run; say --resume to go on from it, or choose another --out."
        )
    if resume and not saved:
        run.say(f"There is no checkpoint in {run.out}; the run begins anew.")
    model.set_params(random_state=run.seed, checkpoint=checkpoint, verbose=run.progress)
    model.fit_stream(chunks, **how, world=together)
    # Whoever loads the model has another place for it.
    model.set_params(checkpoint=None)
    if together.rank == 0:
        model.save(path)
        _index_texts(run, model, chunks)
    seen = {"rows": chunks.n_rows} if together.size == 1 else {"processes": together.size}
    workers = together.size * threads_of(model.n_jobs)
    row: dict[str, Any] = {
        "model": type(model).__name__, **seen, "features": model.n_features_in_, "rank": model._known_rank(),
        "steps": workers * model.n_iter_, "updates": model.n_updates_, "train_seconds": model._seconds,
    }  # fmt: skip
    # The chunks say how many steps there are.
    parameters = {
        name: one for name, one in model.get_params().items() if name not in ("max_iter", "n_epochs")
    }
    return Outcome(str(chunks.path), {**parameters, **asked, **how, "checkpoint": str(checkpoint)}, [row])


def _index_texts(run: Run, model: Any, chunks: stream) -> None:
    """Write the index that ``rmopt serve`` searches, where a similarity was learned from texts."""
    in_a_column = chunks.path.suffix in (".csv", ".tsv") and chunks.feature_names is None
    if isinstance(model, LoretaSimilarity) and (chunks.depth > 1 or in_a_column):
        texts, _, names = read_texts(chunks.path)
        vectorizer = HashingVectorizer(n_features=model.n_features_in_)
        model.index(vectorizer.transform(texts), names, texts=texts, vectorizer=vectorizer).save(run.out)
        run.say(f"rmopt serve {shlex.quote(str(run.out))} searches these texts in a browser.\n")
