"""Write sentences as SequenceExamples, and read them in padded batches.

usage: python examples/sequences.py

The context of a record has the number of words; its feature list has the words, one a
step. Needs only fastrec and NumPy.
"""

from __future__ import annotations

import fastrec as fr

SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "pack my box with five dozen jugs",
    "how vexingly quick zebras jump",
    "we judge",
]


def main() -> None:
    """Write and read sentences."""
    vocabulary = sorted({word for sentence in SENTENCES for word in sentence.split()})
    number = {word: i for i, word in enumerate(vocabulary, start=1)}  # 0 is padding
    with fr.Writer("sentences.tfrecord", overwrite=True) as writer:
        for _ in range(250):
            for sentence in SENTENCES:
                words = sentence.split()
                writer.write_sequence_example(
                    context={"length": len(words)},
                    feature_lists={
                        "words": words,
                        "tokens": [number[word] for word in words],
                    },
                )

    ds = fr.open(
        "sentences.tfrecord",
        context_features={"length": fr.FixedLen((), "int64")},
        sequence_features={
            "words": fr.FixedLenSequence((), "bytes", lengths="n_words"),
            "tokens": fr.FixedLenSequence((), "int64"),
        },
    )
    print(f"{len(ds):,} sentences")
    batch = ds[:4]
    for tokens, words, n in zip(
        batch["tokens"], batch["words"].tolist(), batch["n_words"], strict=True
    ):
        print(tokens, b" ".join(words[:n]).decode())

    # Batches of sentences of similar lengths have little padding.
    lengths = ds.select_columns(["length"])[:]["length"]
    loaders = {
        "as they are": ds.loader(64, shuffle=True, seed=0),
        "by length": ds.loader(
            batches=fr.samplers.bucket_by_length(
                lengths, edges=[4, 8], sizes=[64, 64, 64]
            )
        ),
    }
    for name, loader in loaders.items():
        n_tokens = n_places = 0
        for batch in loader:
            n_tokens += int(batch["length"].sum())
            n_places += batch["tokens"].size
        print(f"batches {name}: {1 - n_tokens / n_places:.0%} padding")


if __name__ == "__main__":
    main()
