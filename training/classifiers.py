"""Train the classifiers that ship with an embedding model.

    .venv/bin/python -m training.classifiers [MODEL]

Writes `models/foremind_models/shipped/MODEL.classifiers.json`, and prints the share of held-out
lines judged rightly.
"""

import sys

import msgspec

from foremind.app.configuration import load_settings
from foremind.retrieval.classifiers import TEXT_FEATURES
from foremind_models import find_model, prepare_model
from foremind_models.calibration import embedding_with
from foremind_models.classifier_training import (
    embed_corpus,
    held_out_accuracy,
    read_corpus,
    shipped_path,
    train,
)


def main() -> None:
    """Train and write the classifiers of one model."""
    settings = load_settings()
    name = sys.argv[1] if len(sys.argv) > 1 else settings.embedding_model
    manifest = find_model(name, settings.models_dir)
    model = prepare_model(manifest, settings.models_dir, print)
    corpus = read_corpus()
    vectors = embed_corpus(corpus, *embedding_with(model))
    classifiers = train(corpus, vectors, manifest.name, TEXT_FEATURES)
    shipped_path(manifest.name).write_bytes(msgspec.json.encode(classifiers) + b"\n")
    for judged, share in held_out_accuracy(corpus, vectors, classifiers, TEXT_FEATURES).items():
        print(f"{judged}: {share:.1%} correct")


if __name__ == "__main__":
    main()
