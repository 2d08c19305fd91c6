"""The words that settings and their values are made of."""

from typing import Literal, get_args

#: What the language model does before Enter.
Ahead = Literal["off", "prefill", "reply"]
Decay = Literal["window", "half_life", "hourly", "product"]
RememberReplies = Literal["all", "informative", "none"]
#: Whether a character has one mind for each player, or one for everybody in a world.
MindKind = Literal["player", "world"]
Consent = Literal["assumed", "required"]
LayerName = Literal[
    "working", "summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions",
    "hot", "library", "vault", "behaviours", "memories", "state",
]  # fmt: skip
LAYERS: tuple[LayerName, ...] = get_args(LayerName)
#: What `retention_days` calls the texts of what was said.
TRANSCRIPT = "transcript"
#: What can expire: layers of records, types of memories, and the transcript.
ExpiringName = Literal[
    "summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions", "hot",
    "vault", "conversation", "observation", "event", "relationship", "transcript",
]  # fmt: skip
#: What `retention_days` calls whatever it does not name.
ALL = "all"
KeptName = Literal[ExpiringName, "all"]
EXPIRING_NAMES: tuple[ExpiringName, ...] = get_args(ExpiringName)
