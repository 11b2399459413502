"""The search behind a page, and its answers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmopt.core.arguments import integer


@dataclass(frozen=True)
class Found:
    """The answer to a query.

    Attributes
    ----------
    query : str
        The text in the field.
    results : list of dict
        Each with ``name``, and possibly ``row``, ``score``, ``std``, ``label``, ``text``, and ``why``, dicts with
        ``term``. For the page alone are ``links``, labels with the address fields of their targets, and ``whole``,
        a text to unfold.
    message : str
        A remark on them, or why there are none.
    kept : list of tuple
        Fields of the address, with their values, that the form on the page sends along.
    liked : mapping
        Items that a person likes, with the address fields of the page without each.
    """

    query: str
    results: list[dict[str, Any]] = field(default_factory=list)
    message: str = ""
    kept: Sequence[tuple[str, Any]] = ()
    liked: Mapping[Any, Sequence[tuple[str, Any]]] = field(default_factory=dict)


class Searcher(ABC):
    """The search behind a page.

    Examples
    --------
    >>> from problems.serving import Found, Searcher, make_app
    >>> class Words(Searcher):
    ...     prompt = "The beginning of a word"
    ...
    ...     def find(self, fields, k):
    ...         begin = fields.get("q", "")
    ...         words = [word for word in ("rank", "retraction") if word.startswith(begin)]
    ...         return Found(begin, [{"name": word} for word in words[:k]])
    >>> app = make_app(Words())
    """

    #: The prompt of the field, and the text before the reasons for a result.
    prompt: str
    because: str = ""

    @abstractmethod
    def find(self, fields: Any, k: int) -> Found:
        """Return at most k results for the fields of an address, with q the typed text.

        Raises
        ------
        InvalidInputError
            If the fields cannot be used.
        """


def whole_number(name: str, text: str, least: int, most: int) -> int:
    """Return the number in a field of an address."""
    return integer(name, int(text) if text.isdecimal() and len(text) < 19 else text, least, most)
