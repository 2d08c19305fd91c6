"""Statements about how the companion should speak: "keep answers short". Pure."""

import re

from foremind.text.statements.clauses import Statement, Statements, compiled

_OPENING = (
    r"^\W*(?:(?:and|but|also|so|ok|okay|oh|well|hey|from now on|[A-Z]\w+)\b,? )?(?:please,? )?"
)
_UTTERANCES = (
    "answers?|replies|reply|messages?|responses?|texts?|sentences?|explanations?|things|stories"
)
_QUALITIES = (
    "short|shorter|brief|briefer|concise|simple|simpler|long|longer|plain|polite|formal|informal|"
    "casual|light|clean|friendly|honest|to the point|direct|gentle|quiet|child-friendly"
)
_MANNER = re.compile(
    _OPENING
    + r"(?P<value>(?i:"
    + rf"keep (?:(?:your|the|all|my|all your) )?(?:{_UTTERANCES}|it) (?:\w+ )?(?:{_QUALITIES})\b|"
    + rf"(?:make|give me|send|write|use) (?:your |me )?(?:only |just )?(?:{_QUALITIES}|metric|"
    rf"imperial|"
    + r"british|american|easy|proper|more|fewer|less|no|plain|the metric) [\w-]+|"
    + r"(?:don't|do not|never|stop|no more|please don't) (?:ever )?(?:"
    + r"(?:call|calling) me (?!to|back|later|again|now|tonight|tomorrow|today|when|if|at|on|before|"
    + r"until|a liar|crazy)\w+|"
    + r"(?:use|using|send|sending|write|writing|spoil|spoiling|mention|mentioning|bring up|quote)"
    + r" (?!it\b|that\b|this\b|them\b|to\b)\w+|"
    + r"(?:give|giving|offer|offering) me (?:\w+ )?(?:advice|tips|lectures|orders|suggestions|"
    r"lists|"
    + r"compliments|nicknames|long)|"
    + r"(?:talk|speak|talking|speaking|ask|asking) (?:to me |with me |me )?(?:about|in|like|"
    r"so) \w+|"
    + r"(?:swear|swearing|lecture|lecturing|patroni[sz]e|patroni[sz]ing|flatter|flattering|"
    r"interrupt|" + r"interrupting|judge|judging|sugar-?coat|rhyme|rhyming|joke|joking|"
    r"apologi[sz]e)(?: me)?\b(?! if))|"
    + r"no (?:more )?(?:emojis?|jokes|spoilers?|swearing|slang|advice|lists|bullet points|"
    r"small talk|"
    + r"abbreviations|exclamation marks|nicknames|sarcasm|lectures|long answers|politics)\b|"
    + r"(?:speak|talk|answer|reply|write|respond)(?: to me| with me| me)?(?: only| always)? "
    + r"(?:in \w+|slowly|briefly|formally|more \w+|less \w+|like an? \w+)|"
    + r"be (?:(?:more|less|very|brutally|always|a bit more|a little more) )?(?:brief|concise|"
    r"honest|"
    + r"direct|blunt|formal|informal|casual|funny|gentle|patient|playful|sarcastic|strict|critical|"
    + r"encouraging|polite|truthful|frank)\b|"
    + r"(?:always|never) (?:answer|reply|speak|talk|use|call|ask|write|give|explain|start|end|"
    r"greet|"
    + r"spoil|mention|address|end|swear|lie|sign|remind|interrupt|assume|correct)\b \w+"
    + r")[^.!?;]{0,80})",
)
_MAX_WORDS = 12  # of an instruction
_CLOSING = compiled(r",? ?(?:please|thanks|thank you|ok|okay|from now on|ever|always|will you)$")


def manners(clause: str) -> Statements:
    """Extract instructions about the companion's manner."""
    match = _MANNER.match(clause)
    if match is None:
        return
    value = re.split(r", (?:i|i'm|it|that|this|my|we|you|and|but|or|because|as)\b", match["value"])[
        0
    ]
    previous = ""
    while value != previous:
        previous, value = value, _CLOSING.sub("", value.strip(" ,"))
    if len(value.split()) <= _MAX_WORDS:
        yield Statement("manner", value[:1].lower() + value[1:])
