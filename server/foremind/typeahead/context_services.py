"""What finds the context of a draft, and caches it."""

from dataclasses import dataclass

from foremind.retrieval.documents.library import Library
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.layer_cache import LayerCache
from foremind.typeahead.context_builder import ContextBuilder
from foremind.typeahead.context_cache import ContextCache
from foremind.typeahead.lorebooks import Lorebooks


@dataclass(frozen=True, slots=True)
class ContextServices:
    """What finds the context of a draft, and caches it."""

    embedder: EmbeddingService
    index: IndexedCandidates
    layer_cache: LayerCache
    library: Library
    builder: ContextBuilder
    cache: ContextCache
    lorebooks: Lorebooks
