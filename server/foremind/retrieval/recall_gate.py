"""When not to recall: "haha yeah" needs no memories. Pure."""

import re

# Who asks for a memory in so many words gets one, whatever the learned head says of it.
_ASKS = re.compile(
    r"\b(?:remember|remind|recall|forg[eo]t(?:ten)?|told you|tell you|did i|have i|do i|am i|was i|"
    r"what(?:[’']s| is| was| are| were) my|who(?:[’']s| is| was)|when (?:did|is|was|will)|"
    r"where (?:did|is|was|do)|(?:what|how) about (?!you\b)|"
    r"how(?:[’']s| is| are| was| were) (?:the|my|our|her|his|their)|my|last time|"
    r"(?:i|you|we)(?:[’']ve| have| had)? (?:just |already |once )?"
    r"(?:discussed|mentioned|talked about|agreed|suggested|recommended|promised|decided))\b",
    re.IGNORECASE,
)
# "What does Ines paint?" asks about someone by name.
_ASKS_ABOUT_SOMEONE = re.compile(
    r"\b(?:[Ww]h(?:at|ich|ere|en|o|ose|y)|[Hh]ow)\b.{0,40}?"
    r"\b(?:is|are|was|were|do|does|did|has|have|had|will|would|can|might)\b (?!I\b)[A-Z]\w+"
)
_HELLO = r"^\W*(?:(?i:hey|hi|hello|so|and|but|well|now|then|ok|okay|oh|um+)\b\W*){0,2}"
# What begins with a question word, or as "did she", "was the", "has Ines" begin, is a question.
# So is what asks whether one knows: "do you know who has it", "can you say where it was".
_BEGINS_AS_QUESTION = re.compile(
    rf"{_HELLO}(?:(?i:(?:do|did|does|can|could|would) (?:you|anyone|anybody|someone|somebody) "
    r"(?:happen to |still |even )?(?:know|say|tell|guess|recall)(?: me)? (?:about )?)?"
    r"(?i:(?:who|what|where|when|why|how)(?:s|[’']\w+)?|whom|whose|which)|"
    r"(?i:did|does|do|is|are|was|were|has|have|had|will|would) "
    r"(?:(?i:i|we|he|she|they|my|our|his|her|their)\b|[A-Z]\w+)|"
    r"(?i:did|was|were|has|had) (?i:the|an?|any|some|every)\w*) +\S"
)
_ENDS_WITHIN = re.compile(r"[.!?…\n]\s*\S")
# A question without its mark: "where do I live", not "what I want is a boat".
_INVERTED = re.compile(
    rf"{_HELLO}(?i:(?:who|what|which|where|when|why|how)(?: \w+)? )?"
    r"(?i:(?:do|does|did|is|are|was|were|can|could|will|would|has|have|had) "
    r"(?:i|you|he|she|it|we|they|my|your|our|his|her|their)\b)"
)
# The same where nobody is meant: "what was the name of my dog again", "where does Tomas live".
_ASKED_OF_THINGS = re.compile(
    rf"{_HELLO}(?:(?i:(?:what|who|where|when|how)(?:[’']?s| is| are| was| were|[’']re)) "
    r"(?i:the|my|your|our|his|her|their|this|that|these|those)\b|"
    r"(?i:what|where|when|why|how|whom?) (?i:did|does) (?!it\b))[^,]*$"
)
_WANTS_TO_BE_TOLD = re.compile(
    rf"{_HELLO}(?i:please |(?:can|could|will|would) you (?:please )?)?"
    r"(?i:tell me|remind me|i(?: was|[’']?m|)? wonder(?:ing)?)(?i: again| once more)? "
    r"(?i:what|who|whom|whose|where|which)\b"
)
# These look like questions and tell something: "Did you know that I moved to Porto?"
_TELLS = re.compile(
    rf"{_HELLO}(?i:did (?:you|u) know|(?:can|could|would) you believe|"
    r"(?:did i|have i)(?: ever| already)? (?:tell|told|mention(?:ed)?|say|said)(?: to)?+(?: you)?+)"
    r"(?i:,? that)?+ (?!(?i:what|who|whom|whose|where|when|which|why|how|if|whether|about)\b)"
    r"(?:\S+\s+){2}\S"
)
# These are said without asking for anything; none is long.
_LONGEST_PHRASE = 100  # characters
_TURN_OF_PHRASE = re.compile(
    rf"{_HELLO}(?:what an? (?!\w+ (?:is|was|are|were|do|does|did|has|had)\b).*|"
    r"how (?!many\b|much\b|long\b|old\b|far\b|often\b|big\b|tall\b)\w+[^?]*!.*|"
    r"(?:what(?:[’']?s| is)|how(?:[’']?s| is| was|[’']re| are)|what are|what have) "
    r"(?:up|new|going on|happening|life|things|it|everything|everybody|everyone|you|"
    r"your (?:day|morning|evening|night|week|weekend))"
    r"(?: (?:up to|been up to|been doing|doing|been|going|today|tonight|now|all|feeling|so far|"
    r"treating you|with you|there|then|these days|since we last talked))*|"
    r"how do you do|who (?:knows|cares)|why not|how so|how come|(?:do )?you know what i mean|"
    r"what about you|how about you|"
    r"what do you (?:think|mean|say)|what happened then|(?:what|how|when) ever|what goes around .*)"
    r"\W*(?:mate|man|buddy|friend|dude|bro)?\W*$",
    re.IGNORECASE,
)


def worth_searching(text: str, learned: float | None) -> bool:
    """Return whether memories could help to answer `text`.

    Args:
        learned: the recall head's log odds for the text, None where the model has no head.
    """
    if not text.strip():
        return False
    if learned is None or learned > 0:
        return True
    return asks(text)


def asks(text: str) -> bool:
    """Return whether `text` asks for something that may be known: in so many words, or as a
    question that is more than a turn of phrase.
    """
    if _ASKS.search(text) or _ASKS_ABOUT_SOMEONE.search(text):
        return True
    return is_question(text)


def is_question(text: str) -> bool:
    """Return whether `text` begins as a question does, and is more than a turn of phrase."""
    return _BEGINS_AS_QUESTION.match(text) is not None and not is_turn_of_phrase(text)


def only_asks(text: str) -> bool:
    """Return whether all of `text` is one question, which states nothing."""
    text = text.strip()
    if _ENDS_WITHIN.search(text) or _TELLS.match(text):
        return False
    if any(each.match(text) for each in (_INVERTED, _ASKED_OF_THINGS, _WANTS_TO_BE_TOLD)):
        return True
    return text.endswith("?") and (is_question(text) or "," not in text)


def is_turn_of_phrase(text: str) -> bool:
    """Return whether `text` looks like a question and asks for nothing ("how are you")."""
    return len(text) <= _LONGEST_PHRASE and _TURN_OF_PHRASE.match(text) is not None
