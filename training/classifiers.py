"""Train the classifiers that ship with an embedding model.

    .venv/bin/python -m training.classifiers [MODEL]

Writes `models/MODEL.classifiers.json` and prints the share of held-out lines judged rightly.
"""

import sys

import msgspec

from foremind.app.configuration import load_settings
from foremind.retrieval.calibration.calibrate import embedding_with
from foremind.retrieval.calibration.classifier_training import (
    embed_corpus,
    held_out_accuracy,
    read_corpus,
    train,
)
from foremind.retrieval.classifiers import classifiers_path
from foremind.retrieval.embedding.conversion import prepare_model
from foremind.retrieval.embedding.model_registry import find_model


def main() -> None:
    """Train and write the classifiers of one model."""
    settings = load_settings()
    name = sys.argv[1] if len(sys.argv) > 1 else settings.embedding_model
    manifest = find_model(name, settings.models_dir)
    model = prepare_model(manifest, settings.models_dir, print)
    corpus = read_corpus()
    vectors = embed_corpus(corpus, *embedding_with(model))
    classifiers = train(corpus, vectors, manifest.name)
    classifiers_path(manifest.name).write_bytes(msgspec.json.encode(classifiers) + b"\n")
    for judged, share in held_out_accuracy(corpus, vectors, classifiers).items():
        print(f"{judged}: {share:.1%} correct")


if __name__ == "__main__":
    main()
