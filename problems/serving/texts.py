"""Search of texts by their words and by a learned similarity."""

import re
from difflib import get_close_matches
from random import Random
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from problems.serving.index import SimilarityIndex
from problems.serving.searcher import Found, Searcher, whole_number
from rmopt.core.ambient import Array
from rmopt.errors import InvalidInputError

# The share of words in a score, of typed texts and of documents similar to one.
TYPED, SIMILAR = 0.9, 0.25
# The usual parameters of BM25: how soon repetitions of a word count less, and how much longer texts do.
REPEATED, LONG = 1.2, 0.75
# A word, also within names_with_underscores, and the places within CamelCase.
WORD, INNER = r"[^\W_]+", r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
# The least number of letters of a part of a name, and of a word that may be misspelt; how similar is its correction.
PART, MISSPELT, CLOSE = 3, 4, 0.8
# The number of characters of a passage, those before its first word, and the places among which it is chosen.
PASSAGE, BEFORE, PLACES = 240, 60, 200
# The largest number of names of equal texts, and of texts to try a search on.
COPIES, TRIES = 5, 100


def bm25(counts: Any) -> csr_array:
    """Return the weights of words in documents: a document's score is the sum of those of a query's words.

    Parameters
    ----------
    counts : sparse array, shape (n_documents, n_words)

    References
    ----------
    Robertson and Zaragoza, The probabilistic relevance framework: BM25 and beyond, Foundations and Trends in
    Information Retrieval 3 (2009), https://doi.org/10.1561/1500000019.
    """
    weights = csr_array(counts, dtype=np.float32)
    n, length = weights.shape[0], np.asarray(weights.sum(axis=1)).ravel()
    found = np.bincount(weights.indices, minlength=weights.shape[1])
    rarity = np.log1p((n - found + 0.5) / (found + 0.5))[weights.indices]
    slower = REPEATED * (1.0 - LONG + LONG * length / max(length.mean(), 1.0))
    slower = np.repeat(slower, np.diff(weights.indptr))
    weights.data *= ((REPEATED + 1.0) * rarity / (weights.data + slower)).astype(np.float32)
    return weights


def scores_of_words(queries: Any, words: csr_array) -> Array:
    """Return the scores of documents for the words in each row of a table, from the transposed `bm25` of them."""
    return (csr_array(queries, dtype=np.float32).sign() @ words).toarray()


def blended(learned: Array, words: Array, share: float) -> Array:
    """Return a share of scores by words, and the rest of learned ones, each over the query's largest."""
    return share * _scaled(words) + (1.0 - share) * _scaled(learned)


def _scaled(scores: Array) -> Array:
    largest = np.abs(scores).max(axis=1, keepdims=True)
    return scores / np.where(largest > 0.0, largest, 1.0)


def passage(text: str, words: set[str]) -> str:
    """Return the part of a text with the most of some words, or its beginning, on one line."""
    line, places = " ".join(text.split()), list[tuple[int, str]]()
    for place in re.finditer(WORD, line):
        if len(places) < PLACES and place[0].lower() in words:
            places.append((place.start(), place[0].lower()))

    def near(start: int) -> int:
        return len({word for at, word in places if 0 <= at - start < PASSAGE - BEFORE})

    start = max((at for at, _ in places), key=near, default=0)
    # Not from within a word.
    start = 0 if start < PASSAGE // 2 else line.find(" ", start - BEFORE) + 1
    part = line[start:] if len(line) - start <= PASSAGE else line[start : start + PASSAGE - 1].rstrip() + "…"
    return "…" * (start > 0) + part


class TextSearch(Searcher):
    """The documents with the words of a text, or similar to one of them.

    Documents are ranked by typed words (BM25). A tenth of a score is the learned similarity. For documents similar to
    one it is three quarters. Documents whose name has the query come first. Equal texts are shown once.

    Parameters
    ----------
    index : SimilarityIndex
        With texts and a vectorizer.
    """

    prompt = "Text to search for"
    because = "the same text:"

    def __init__(self, index: SimilarityIndex) -> None:
        if index.texts is None or index.vectorizer is None:
            raise InvalidInputError(
                "the index lacks texts or a vectorizer, without which a page has nothing to show; make it by "
                "model.index(X, names, texts=…, vectorizer=…)."
            )
        self.index = index
        names = [f"{name}\n{re.sub(INNER, ' ', str(name))}" for name in index.names]
        self._names = [name.replace("_", " ").lower() for name in names]
        self._rows = {str(name).lower(): row for row, name in enumerate(index.names)}
        self._counter = CountVectorizer(token_pattern=WORD)
        every = map(" ".join, zip(names, index.texts, strict=True))
        # A row for each word: a query reads those of its own.
        self._words = bm25(self._counter.fit_transform(every)).T.tocsr()

    def find(self, fields: Any, k: int) -> Found:
        index, query, message = self.index, fields.get("q", "").strip(), ""
        row, named, share = self._rows.get(query.lower(), -1), np.zeros(len(index)), SIMILAR
        if "like" in fields:
            row = whole_number("like", fields["like"], 0, len(index) - 1)
            query, message = "", f"Similar to {index.names[row]}:"
        elif not query:
            return Found("", message=f"{len(index):,} texts.")
        text = index.texts[row]
        if row < 0:
            share, (text, message) = TYPED, self._corrected(query)
            # Short words begin many names. The last word of a name is its own.
            part = rf"(?<![^\W_]){re.escape(text.replace('_', ' ').lower())}"
            begun, ended = re.compile(part).search, re.compile(rf"{part}$", re.MULTILINE).search
            if len(text) >= PART:
                named = np.array([2.0 if ended(name) else float(bool(begun(name))) for name in self._names])
        words = scores_of_words(self._counter.transform([text]), self._words)
        learned = index.embedded(index.vectorizer.transform([text])) @ index.embeddings.T
        scores = blended(learned, words, share)[0] + named
        if row >= 0:
            # A document is not an answer to itself, but the first one to its name.
            alike = [other == text for other in index.texts]
            scores[alike] = 2.0 if query else -np.inf
            scores[row] += 1.0
        elif not words.any():
            scores[~named.astype(bool)], message = -np.inf, "" if named.any() else message
        seen = set() if row >= 0 else set(re.findall(WORD, text.lower()))
        return Found(query, [self._result(rows, scores, seen) for rows in self._best(scores, k)], message)

    def _corrected(self, query: str) -> tuple[str, str]:
        """Return a query with unknown words replaced by similar known ones, and a message on them."""
        known, words = self._counter.vocabulary_, re.findall(WORD, query.lower())
        strange = [word for word in words if word not in known]
        near = {word: get_close_matches(word, known, 3, CLOSE) for word in strange if len(word) >= MISSPELT}
        # The one in the most texts.
        uses = np.diff(self._words.indptr)
        taken = {word: max(found, key=lambda one: uses[known[one]]) for word, found in near.items() if found}
        typed = re.sub(WORD, lambda place: taken.get(place[0].lower(), place[0]), query)
        message = f"No text has {' or '.join(strange)}." if strange else ""
        return typed, f"{message} Searched for: {typed}" if taken else message

    def _best(self, scores: Array, k: int) -> list[list[int]]:
        """Return the rows of the k best texts, with those of equal texts."""
        found = dict[str, list[int]]()
        for row in np.argsort(-scores, kind="stable").tolist():
            text = self.index.texts[row]
            if scores[row] == -np.inf or (text not in found and len(found) == k):
                break
            found.setdefault(text, []).append(row)
        return [*found.values()]

    def _result(self, rows: list[int], scores: Array, seen: set[str]) -> dict[str, Any]:
        """Return the result for a text, of which some words may have been searched."""
        index, row, same = self.index, rows[0], rows[1 : 1 + COPIES]
        text, labels = index.texts[row], [] if index.labels is None else [("label", index.labels[row])]
        why = [("why", [{"term": index.names[other]} for other in same])] if same else []
        return {
            "row": row, "name": index.names[row], "score": float(scores[row]), **dict(labels), **dict(why),
            "text": passage(text, seen), "whole": text, "links": {"similar": [("like", row)]},
        }  # fmt: skip


def finds(search: TextSearch, random: Random) -> tuple[int, int]:
    """Return how often the first ten words of a text find it among ten results, and the number of tries."""
    texts = search.index.texts
    tried = random.sample(texts, min(TRIES, len(texts)))
    answers = (search.find({"q": " ".join(text.split()[:10])}, 10) for text in tried)
    found = [
        text in [one["whole"] for one in answer.results] for text, answer in zip(tried, answers, strict=True)
    ]
    return sum(found), len(tried)
