"""gensim's Word2Vec: skip-gram with negative sampling, as many workers as threads."""

from __future__ import annotations

import numpy as np
from gensim.models.word2vec import FAST_VERSION, Word2Vec

from bench import models
from bench.contestant import Builders, Contestant, Unsupported
from bench.workloads import Word2vec, Workload


def builders(work: Workload, threads: int) -> Builders:
    match work:
        case Word2vec():
            return {"gensim": lambda: _word2vec(work, threads)}
    return {}


def _word2vec(work: Word2vec, threads: int) -> Contestant:
    if FAST_VERSION < 0:
        raise Unsupported("no compiled training in this installation")
    task = models.WordTask(work)
    corpus = [[str(word) for word in sentence] for sentence in task.training]
    model = Word2Vec(
        vector_size=work.width, window=work.window, negative=work.negatives, sg=1, min_count=1,
        sample=0, workers=threads, seed=1,
    )  # fmt: skip
    model.build_vocab(corpus)

    def step() -> None:
        # Each pass anew from the first learning rate, as the passes of fit are.
        model.train(corpus, total_examples=len(corpus), epochs=1)

    def loss() -> float:
        vectors = np.zeros((work.vocabulary, work.width), np.float32)
        contexts = np.zeros_like(vectors)
        order = np.array([int(word) for word in model.wv.index_to_key])
        vectors[order] = model.wv.vectors
        contexts[order] = model.syn1neg
        return task.loss(vectors, contexts)

    return Contestant(step, loss=loss, steps_to_loss=1)
