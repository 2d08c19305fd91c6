"""Okapi BM25 over arrays of term frequencies, shared by memories and documents. Pure.

Robertson et al. 1994 (TREC-3): a document scores, for each query term, the term's idf times its
saturated frequency. The idf is ln(1 + (N - n + 0.5) / (n + 0.5)), the form of Lucene and of BM25L;
it is never negative, so a term that most documents contain still counts for those that do.
"""

import math

from foremind.retrieval.candidates import Numbers

K1 = 1.5  # term-frequency saturation
B = 0.75  # strength of length normalisation


def idf(document_frequency: int, documents: int) -> float:
    """Return the idf of a term that `document_frequency` of `documents` contain; 0 if none do."""
    if not document_frequency:
        return 0.0
    absent = max(documents, document_frequency) - document_frequency
    return math.log(1 + (absent + 0.5) / (document_frequency + 0.5))


def length_norms(lengths: Numbers, mean_length: float) -> Numbers:
    """Return the length normalisation of documents, given their lengths in terms, float64 [n]."""
    return K1 * (1 - B + B * lengths / mean_length)


def saturated(frequencies: Numbers, norms: Numbers) -> Numbers:
    """Return saturated term frequencies, from 0 to below K1 + 1; times the idf they are scores.

    Args:
        frequencies: how often documents contain terms, float64 of any shape.
        norms: the `length_norms` of those documents, broadcast against `frequencies`.
    """
    return frequencies * (K1 + 1) / (frequencies + norms)
