"""word2vec: skip-gram with negative sampling, on a text small enough to read.

Mikolov et al. (2013), *Distributed Representations of Words and Phrases and their
Compositionality*.
"""

import numpy as np

import fastopt as fo

TEXT = """
the cat drinks milk . the dog drinks water . the cat chases the mouse . the dog chases the cat .
a mouse eats cheese . a cat eats fish . a dog eats meat . the dog sleeps in the house .
the cat sleeps in the house . the mouse sleeps in the wall . the cat likes fish and milk .
the dog likes meat and water . the mouse likes cheese and bread .
paris is a city in france . rome is a city in italy . berlin is a city in germany .
people in paris speak french . people in rome speak italian . people in berlin speak german .
the train from paris to rome stops in milan . the train from berlin to paris stops in cologne .
milan is a city in italy . cologne is a city in germany . lyon is a city in france .
people in lyon speak french . people in milan speak italian . people in cologne speak german .
"""
WIDTH, WINDOW, NEGATIVES, EPOCHS = 16, 2, 5, 60


def main() -> dict[str, list[str]]:
    """Train, and return the nearest neighbours of a few words."""
    rng = np.random.default_rng(0)
    sentences = [line.split() for line in TEXT.replace("\n", " ").split(".")]
    words, counts = np.unique([w for s in sentences for w in s], return_counts=True)
    number = {word: k for k, word in enumerate(words)}
    pairs = np.array(
        [
            (number[center], number[sentence[j]])
            for sentence in sentences
            for i, center in enumerate(sentence)
            for j in range(max(0, i - WINDOW), min(len(sentence), i + WINDOW + 1))
            if j != i
        ]
    )
    noise = counts**0.75 / np.sum(counts**0.75)

    vectors = fo.Variable(rng.normal(0, 0.1, (len(words), WIDTH)).astype(np.float32), name="in")
    contexts = fo.Variable(np.zeros((len(words), WIDTH), np.float32), name="out")
    optimizer = fo.LazyAdamOptimizer(0.01)  # touches only the rows of the batch

    for epoch in range(1, EPOCHS + 1):
        rng.shuffle(pairs)
        total = 0.0
        for batch in np.array_split(pairs, 8):
            wrong = rng.choice(len(words), (len(batch), NEGATIVES), p=noise)
            candidates = np.column_stack([batch[:, 1], wrong])
            labels = np.zeros(candidates.shape, np.float32)
            labels[:, 0] = 1

            def loss(centers=batch[:, 0], candidates=candidates, labels=labels):
                # Inner products of each center and its candidates: (n, 1 + negatives).
                logits = fo.embedding_dot(vectors, centers, contexts, candidates)
                losses = fo.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
                return np.sum(losses) / len(centers)

            total += float(loss())
            optimizer.minimize(loss, var_list=[vectors, contexts])
        if epoch % 20 == 0:
            print(f"epoch {epoch}: loss {total / 8:.4f}")

    unit = vectors.value / np.linalg.norm(vectors.value, axis=1, keepdims=True)
    nearest = {}
    for word in ("cat", "paris", "italian", "eats"):
        order = np.argsort(-(unit @ unit[number[word]]), kind="stable")
        nearest[word] = [str(words[k]) for k in order[1:4]]
        print(f"{word}: {', '.join(nearest[word])}")
    return nearest


if __name__ == "__main__":
    main()
