"""Text to vectors: model manifests, conversion, one ONNX session behind one bounded queue."""
