import hashlib
import re
import sys

import pytest
import torch

from lsdl_lib import data
from lsdl_lib.data.characters import corpus_of


@pytest.fixture(scope="module")
def corpus():
    return data.characters()


def paragraphs(text):
    return {part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()}


def test_splits_share_no_paragraph_and_lose_none(corpus):
    from pydoc_data.topics import topics

    splits = [paragraphs(corpus.decode(part)) for part in (corpus.train, corpus.val, corpus.test)]
    assert not splits[0] & splits[1]
    assert not splits[0] & splits[2]
    assert not splits[1] & splits[2]
    assert set.union(*splits) == paragraphs("\n\n".join(topics.values()))


def test_sizes(corpus):
    total = len(corpus.train) + len(corpus.val) + len(corpus.test)
    assert total > 300_000
    for part, share in ((corpus.train, 0.8), (corpus.val, 0.1), (corpus.test, 0.1)):
        assert len(part) / total == pytest.approx(share, abs=0.03)
        assert part.dtype == torch.int64


def test_vocabulary_is_sorted_and_complete(corpus):
    assert list(corpus.vocabulary) == sorted(set(corpus.vocabulary))
    used = torch.cat([corpus.train, corpus.val, corpus.test]).unique().tolist()
    assert used == list(range(len(corpus.vocabulary)))


def test_hash_is_stable_and_of_the_text():
    corpus = corpus_of(["one\n\ntwo", "two\n\nthree"])
    assert corpus.sha256 == hashlib.sha256(b"one\n\ntwo\n\nthree\n\n").hexdigest()
    assert corpus.sha256 == corpus_of(["one\n\ntwo\n\nthree"]).sha256
    assert corpus.sha256 != corpus_of(["one\n\ntwo\n\nthrew"]).sha256


def test_sections_go_to_train_validation_and_test_in_turn():
    texts = [chr(ord("a") + place % 10) * 1998 for place in range(10)]  # 2,000 with the blank line
    corpus = corpus_of(texts)
    assert corpus.decode(corpus.val) == "i" * 1998 + "\n\n"
    assert corpus.decode(corpus.test) == "j" * 1998 + "\n\n"
    assert len(corpus.train) == 16_000


def test_encode_and_decode(corpus):
    text = "def f(x):\n    return x"
    assert corpus.decode(corpus.encode(text)) == text
    with pytest.raises(ValueError, match=r"'\\x00' is not one of the corpus's"):
        corpus.encode("a\x00")


def test_python_without_the_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ImportError, match="comes without pydoc_data"):
        data.characters()


@pytest.mark.parametrize(("length", "context"), [(11, 5), (12, 5), (15, 5), (16, 5), (2, 1)])
def test_windows_target_every_character_once(length, context):
    tokens = torch.arange(length) * 10
    inputs, targets = data.windows(tokens, context)
    samples = (length - 1) // context
    assert inputs.shape == targets.shape == (samples, context)
    assert inputs.flatten().tolist() == [10 * place for place in range(samples * context)]
    assert torch.equal(targets, inputs + 10)


def test_random_windows_are_consecutive_and_differ_by_step_and_seed():
    tokens = torch.arange(1000)
    inputs, targets = data.random_windows(tokens, 64, 7, step=0)
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(7))
    same, _ = data.random_windows(tokens, 64, 7, step=0)
    assert torch.equal(inputs, same)
    for other in ({"step": 1}, {"step": 0, "seed": 1}):
        assert not torch.equal(inputs, data.random_windows(tokens, 64, 7, **other)[0])


def test_random_windows_reach_both_ends():
    inputs, targets = data.random_windows(torch.arange(6), 200, 3, step=0)
    assert inputs.min() == 0
    assert targets.max() == 5


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
def test_ranks_share_the_same_global_batch(ranks):
    tokens = torch.arange(500)
    whole, _ = data.random_windows(tokens, 12, 5, step=3, seed=9)
    for rank in range(ranks):
        part, _ = data.random_windows(tokens, 12, 5, step=3, seed=9, rank=rank, ranks=ranks)
        assert torch.equal(part, whole[rank::ranks])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 10, "ranks": 3}, "batch=10 cannot be shared by ranks=3"),
        ({"batch": 0}, "batch=0 cannot"),
        ({"batch": 4, "ranks": 2, "rank": 2}, "this is rank 2"),
        ({"context": 20}, "context=20 must be at least 1 and below the number of tokens, 20"),
        ({"context": 0}, "context=0 must"),
    ],
)
def test_random_windows_errors(options, message):
    with pytest.raises(ValueError, match=message):
        data.random_windows(torch.arange(20), **{"batch": 4, "context": 3, "step": 0, **options})


def test_windows_error():
    with pytest.raises(ValueError, match="context=5 must"):
        data.windows(torch.arange(5), 5)
