"""What is kept and what is erased: ingest, scoring, consolidation, correction, erasure, import."""
