"""A character-level corpus that every Python carries: the texts behind ``help("topics")``.

The text is the module ``pydoc_data.topics``, about 400,000 characters. It differs between Python
versions, so that a page which reports a loss on it also reports ``sha256``.

A fifth of the raw text is there twice (the topic "for" is a part of "compound", and so on). A split
of the raw text would put copies of training text in the validation set. So each paragraph is kept
once, where it first occurs, and the splits are cut between paragraphs: of every 20,000 characters
the first 16,000 or so go to training, then 2,000 to validation and 2,000 to test. All three splits
are then drawn from all topics, and no paragraph is in two.
"""

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_SECTION = 2000  # characters
_SPLIT_OF_SECTION = ("train",) * 8 + ("val", "test")


@dataclass(frozen=True, eq=False)
class CharacterCorpus:
    """A text as tokens, one a character.

    Attributes:
        vocabulary: all characters of the text, sorted; a token is an index into it.
        train, val, test: tokens, int64, (N,) each.
        sha256: hexadecimal hash of the whole text in UTF-8, the three splits included.
    """

    vocabulary: str
    train: Tensor
    val: Tensor
    test: Tensor
    sha256: str

    def encode(self, text):
        """Return the tokens of ``text``, (len(text),), int64.

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        places = {character: token for token, character in enumerate(self.vocabulary)}
        unknown = sorted(set(text) - set(places))
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not one of the corpus's {len(places)} characters")
        return torch.tensor([places[character] for character in text], dtype=torch.int64)

    def decode(self, tokens):
        """Return the text of a one-dimensional tensor of tokens."""
        return "".join(self.vocabulary[token] for token in tokens.tolist())


def characters():
    """Return the corpus of this Python's documentation. Deterministic, a tenth of a second.

    Raises:
        ImportError: this Python was installed without ``pydoc_data``.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ImportError(
            "this Python comes without pydoc_data (some minimal images leave it out); "
            "install your system's full Python standard library"
        ) from error
    return corpus_of(topics[name] for name in sorted(topics))


def corpus_of(texts):
    """Return the corpus of an iterable of texts, without repeated paragraphs."""
    paragraphs = {}  # a dict keeps the order and drops what repeats
    for text in texts:
        for paragraph in re.split(r"\n\s*\n", text):
            if paragraph.strip():
                paragraphs.setdefault(paragraph.strip(), paragraph.strip("\n") + "\n\n")
    pieces = {"train": [], "val": [], "test": []}
    start = 0
    for paragraph in paragraphs.values():
        section = start // _SECTION
        pieces[_SPLIT_OF_SECTION[section % len(_SPLIT_OF_SECTION)]].append(paragraph)
        start += len(paragraph)
    whole = "".join(paragraphs.values())
    vocabulary = "".join(sorted(set(whole)))
    empty = torch.empty(0, dtype=torch.int64)
    corpus = CharacterCorpus(
        vocabulary, empty, empty, empty, hashlib.sha256(whole.encode()).hexdigest()
    )
    tokens = {split: corpus.encode("".join(parts)) for split, parts in pieces.items()}
    return CharacterCorpus(vocabulary, sha256=corpus.sha256, **tokens)


def windows(tokens, context):
    """Cut tokens into consecutive samples for next-character prediction.

    Args:
        tokens: (N,), int64.
        context: T, characters a sample.

    Returns:
        inputs and targets, ((N - 1) // T, T) each, int64; ``targets[i, t]`` follows
        ``inputs[i, t]`` in the text. Every character but the first and the last few is a target
        exactly once, so that the mean loss over the samples is the loss on the text.

    Raises:
        ValueError: there are fewer than T + 1 tokens, or T is below 1.
    """
    _check_context(tokens, context)
    samples = (len(tokens) - 1) // context
    inputs = tokens[: samples * context].view(samples, context)
    targets = tokens[1 : samples * context + 1].view(samples, context)
    return inputs, targets


def random_windows(tokens, batch, context, *, step, seed=0, rank=0, ranks=1):
    """Return this rank's share of the global batch of one training step.

    The global batch depends on the seed and the step only. Rank r holds its rows r, r + ranks, ...,
    so that training is the same at any number of ranks that divides the batch.

    Args:
        tokens: (N,), int64.
        batch: B, global batch size in samples.
        context: T, characters a sample.
        step: number of the step; every step draws afresh, with replacement.
        seed: of the whole run.
        rank: of the caller.
        ranks: that share the batch.

    Returns:
        inputs and targets, (B / ranks, T) each, int64.

    Raises:
        ValueError: the ranks do not divide the batch, or T does not fit the tokens.
    """
    _check_context(tokens, context)
    if batch < 1 or ranks < 1 or batch % ranks or not 0 <= rank < ranks:
        raise ValueError(
            f"batch={batch} cannot be shared by ranks={ranks} (this is rank {rank}); "
            "choose a multiple of the number of ranks"
        )
    starts = np.random.default_rng([seed, step]).integers(len(tokens) - context, size=batch)
    mine = torch.from_numpy(starts[rank::ranks])  # (B / ranks,)
    rows = mine.unsqueeze(1) + torch.arange(context)  # (B / ranks, T)
    return tokens[rows], tokens[rows + 1]


def _check_context(tokens, context):
    if not 1 <= context < len(tokens):
        raise ValueError(
            f"context={context} must be at least 1 and below the number of tokens, {len(tokens)}"
        )
