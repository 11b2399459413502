"""``rmopt serve``: search and recommend in a browser; a plug-in makes the page."""

from pathlib import Path
from typing import Annotated

import typer

from rmopt.cli.failures import told_in_a_sentence
from rmopt.cli.plugins import load_experiment
from rmopt.cli.signature import path

# A function `serve(path, host, port, said)`.
GROUP = "rmopt.serve"


def serve(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            parser=path,
            help="What rmopt fit completion wrote, or SimilarityIndex.save; one that you trust.",
        ),
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is seen from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 takes a free one.")] = 8000,
) -> None:
    """Search texts, or ask for recommendations, in a browser.

    A page with a form, and /search?q=TEXT&k=10 for programs, until it is interrupted (Ctrl-C).
    """
    with told_in_a_sentence():
        page = load_experiment("serve", GROUP)
        page(folder, host, port, lambda address: typer.echo(f"{folder} is at {address} until Ctrl-C."))
