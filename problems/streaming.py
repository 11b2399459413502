"""``rmopt fit`` on rows with classes or labels: one model from files larger than memory."""

import shlex
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from sklearn.feature_extraction.text import HashingVectorizer
from typer import Argument, Option

from problems.data import read_texts, stream
from problems.loreta import Loreta
from problems.ranking import LoretaLabelRanker
from problems.similarity import LoretaSimilarity
from problems.similarity.experiment import mean_precision, scores_of
from problems.threads import threads_of
from rmopt.core import InvalidInputError
from rmopt.experiments import Outcome, Run

SEEN = "seen mAP: mean average precision among the last rows learned; on held-out rows: rmopt run similarity."


@dataclass(kw_only=True)
class Fit:
    """Learns one model from files, resuming from a checkpoint in the output folder, and writes it there."""

    files: Annotated[
        Path,
        Argument(
            help="a file, or a folder of .svmlight, .npz or .csv files; for similarity also texts. If names of "
            "columns are not clear, add their meaning: tickets.csv::text=body,label=kind."
        ),
    ]
    n_features: Annotated[
        int | None,
        Option(min=1, help="Number of features, needed for .svmlight; by default 262,144 for hashed texts."),
    ] = None
    rank: Annotated[int | None, Option(min=1, help="Rank of the model; by default set by the data.")] = None
    step_size: Annotated[float | None, Option(help="Step size; by default set by row lengths.")] = None
    epochs: Annotated[int, Option(min=1, help="Passes over the files.")] = 1
    batch_size: Annotated[int, Option(min=1, help="Rows in memory at a time.")] = 10_000
    one_based: Annotated[bool, Option("--one-based", help="Features of .svmlight start at 1.")] = False
    n_jobs: Annotated[int, Option(help="Threads that learn one model, -1 for all cores.")] = 1
    resume: Annotated[bool, Option("--resume", help="Continue from the checkpoint in --out.")] = False

    def _learned(self, run: Run, model: Loreta, **how: Any) -> Outcome:
        chunks = stream(
            self.files, n_features=self.n_features, batch_size=self.batch_size, n_epochs=self.epochs,
            random_state=run.seed, zero_based=not self.one_based, multilabel=isinstance(model, LoretaLabelRanker),
        )  # fmt: skip
        saved = (checkpoint := run.path("checkpoint.npz")).exists()
        if saved and not self.resume:
            raise InvalidInputError(
                f"{checkpoint} is of an earlier run; add --resume to continue from it, or choose another --out."
            )
        if self.resume and not saved:
            run.say(f"There is no checkpoint in {run.out}; the run starts at the beginning.")
        model.set_params(random_state=run.seed, checkpoint=checkpoint, verbose=run.progress)
        model.fit_stream(chunks, **how)
        # Users of the model have another path for it.
        model.set_params(checkpoint=None)
        model.save(run.path("model.npz"))
        notes = [SEEN, _index_texts(run, model, chunks)] if isinstance(model, LoretaSimilarity) else []
        row: dict[str, Any] = {
            "model": type(model).__name__, "rows": chunks.n_rows, "features": model.n_features_in_,
            "rank": model._known_rank(), "steps": threads_of(model.n_jobs) * model.n_iter_,
            "updates": model.n_updates_, "train_seconds": model._seconds,
        }  # fmt: skip
        if isinstance(model, LoretaSimilarity):
            with suppress(InvalidInputError):
                # Chunks may hold no two rows of a class.
                row["seen_map"] = mean_precision(scores_of(model, chunks.last[0]), chunks.last[1], run.seed)
        options = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "files"}
        return Outcome(str(self.files), options | {"checkpoint": str(checkpoint)}, [row], notes=notes)


@dataclass(kw_only=True)
class Similarity(Fit):
    """Learn a similarity from rows with classes, chunk by chunk, and write model.npz, and for texts an index.

    Texts are files in a folder for each class, or a column called text next to one called label. The index lets rmopt
    serve search them.

    A checkpoint is written every half minute. With --resume and the same --out folder a killed run continues from it,
    with the same result. LoretaSimilarity.load reads the model.
    """

    steps_per_row: Annotated[float, Option(help="Triplets for each row of a chunk.")] = 10.0
    psd: Annotated[bool, Option("--psd", help="Learn a positive semidefinite matrix.")] = False
    init: Annotated[
        str, Option(help="The start: gaussian, or identity for rows with the important features first.")
    ] = "gaussian"

    def __call__(self, run: Run) -> Outcome:
        model = LoretaSimilarity(
            self.rank, step_size=self.step_size, psd=self.psd, init=self.init, n_jobs=self.n_jobs
        )
        return self._learned(run, model, steps_per_row=self.steps_per_row)


class Ranking(Fit):
    """Learn to rank labels from rows with several labels, chunk by chunk, and write model.npz.

    Labels are numbers of columns, from 0. New ones may occur at any time. A checkpoint is written every half minute.
    With --resume and the same --out folder a killed run continues from it, with the same result.
    LoretaLabelRanker.load reads the model.
    """

    def __call__(self, run: Run) -> Outcome:
        return self._learned(run, LoretaLabelRanker(self.rank, step_size=self.step_size, n_jobs=self.n_jobs))


similarity, ranking = Similarity, Ranking


def _index_texts(run: Run, model: LoretaSimilarity, chunks: stream) -> str:
    """Write the index for ``rmopt serve``, if a similarity was learned from texts, and return a note on it."""
    if not chunks.holds_texts:
        return "\nNo index for rmopt serve was written: the rows hold no texts, in a column called text or in files."
    texts, classes, names = list[str](), list[str](), list[str]()
    about = ",".join(f"{role}={name}" for role, name in chunks.said.items())
    for file in chunks.files:
        found, kinds, known = read_texts(f"{file}::{about}" if about else file, run.say)
        texts += found
        classes += kinds
        names += known
    vectorizer = HashingVectorizer(n_features=model.n_features_in_)
    X = vectorizer.transform(texts)
    model.index(X, names, texts=texts, vectorizer=vectorizer, labels=classes).save(run.out)
    return f"\nrmopt serve {shlex.quote(str(run.out))} searches these texts in a browser."
