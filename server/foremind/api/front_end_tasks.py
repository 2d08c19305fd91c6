"""What chat front ends ask a model about a conversation: a title, tags, a search, a summary. Pure.

Their prompts differ, can be configured, and are in many languages. They are recognised by what they
have in common: they name or quote a conversation, ask for something that is made of it, and say in
which form a program wants it.
"""

import re
from bisect import bisect_left

_MAX_SEARCHED_CHARS = 20_000  # at either end of a text that may be a task
_REQUEST_CHARS = 300  # from a verb to what is asked for, where a conversation is quoted
_SENTENCE_CHARS, _SENTENCE_CHARS_BEFORE = 260, 80  # that name both, around a verb
_FORM_CHARS = 500  # around them, in which the form is stated

_MARKS = r"[^\w\n]{0,6}"  # bounded, as texts may be megabytes of them
#: For each language other than English the stems of: what asks, titles and tags, what else is made
#: of a conversation, a conversation, and what only a program wants (or rules out) in an answer.
_STEMS = {
    "de": (
        "erstell|erzeug|generier|fass|gib|geben|schreib|nenn", "titel|überschrift|schlagw",
        "thema|zusammen|stichw", "gespräch|unterhaltung|konversation",
        "erklärung|satzzeichen|anführungs|kontext",
    ),
    "es": (
        "gener(?:a|e|ar)\\b|devuelv|resum[ae]|escrib|crea\\b", "título|etiquetas",
        "tema\\b|resum|palabras clave", "conversaci|esta frase",
        "explicaci|puntuación|comillas|contexto",
    ),
    "fr": (
        "gén[éè]r|résum|donne|utilisez|écri|crée|faites", "titre", "sujet|résum|mots-clés",
        "échange|cette phrase", "guillemets|ponctuation|contexte",
    ),
    "it": (
        "gener[ai]\\b|riassum|riport|scriv|crea\\b", "titolo", "tema\\b|riassu|parole chiave",
        "conversazion|questa frase", "spiegazion|punteggiatura|virgolette|contesto",
    ),
    "ja": (
        "生成|返して|要約|まとめ|作成", "タイトル|テーマ|タグ", "要約|まとめ",
        "会話|対話|チャット|この文", "説明|句読点|引用符|コンテキスト",
    ),
    "ko": (
        "생성|요약|반환|작성|만들", "제목|주제|태그", "요약|키워드", "대화|채팅|이 문장",
        "설명|문장 부호|따옴표|컨텍스트",
    ),
    "nl": (
        "genereer|vat|geef|schrijf|maak", "titel", "onderwerp|samenvat|trefwoord", "gesprek",
        "uitleg|leestekens|aanhalings",
    ),
    "pl": (
        "wygener|podsum|stwórz|napisz|podaj", "tytuł", "temat|podsumow", "rozmow|konwersac|czat",
        "wyjaśn|interpunk|cudzys|kontekst",
    ),
    "pt": (
        "gere|escrev|crie|resuma", "título|etiquetas", "tema\\b|resum|palavras-chave",
        "conversa|discussão|esta frase", "explica|pontuação|aspas",
    ),
    "ru": (
        "сгенер|укаж|подвед|напиш|созда|придума|кратко", "заголов|назван",
        "тем[аыу]\\b|итог|резюм|ключев",
        "бесед|диалог|чат|переписк|разговор|сообщени", "объяснен|знаков|кавыч|контекст",
    ),
    "th": ("สรุป|ตั้งชื่อ|สร้าง", "ชื่อ|หัวข้อ|แท็ก", "สรุป", "การสนทนา|แชท", "คำอธิบาย|เครื่องหมาย"),
    "tr": (
        "oluştur|özetle|verin", "başlı[ğk]", "özet|anahtar|konu", "sohbet|konuşma|cümle",
        "açıklama|noktalama|tırnak|bağlam",
    ),
    "zh": (
        "生成|返回|[总總][结結]|概括|摘要|提取|命名",
        "[标標][题題]|主[题題]|[标標][签籤]|名[字称稱]",
        "[总總][结結]|摘要|概括|关键词", "[对對会會][话話]|聊天|[这這]句[话話]",
        "解[释釋]|[标標][点點]|引[号號]|上下文",
    ),
}  # fmt: skip
_UNSPACED = frozenset({"ja", "ko", "th", "zh"})  # where a word may begin anywhere
_LIMITS = (
    r"max\w*|at most|(?:no|not) (?:more|longer) than|up to|within|under|(?:less|fewer) than|"
    r"höchstens|unter|weniger als|moins de|menos de|dentro de|de máximo|meno di|entro|"
    r"не более|do|minder dan|en fazla"
)
_COUNTED = (
    r"words?\b|characters?\b|tokens\b|wört|wort|zeichen|mots\b|caract|caratt|palabras|parole\b|"
    r"palavras|слов|символ|słów|znak|woorden|tekens|kelime|karakter|[个個]?字|文字|글자|단어|자\b|คำ"
)
_ONLY = (
    "only|just|nur|solo|sólo|uniquement|seulement|soltanto|apenas|somente|только|tylko|alleen|yalnızca"
    "|sadece"
)
_ANSWER = (
    "return|output|reply|respond|answer|antwort|gib|respond|devuelv|répond|renvoie|rispond|responda|"
    "retorne|ответ|верни|odpowied|zwróć|antwoord|yanıt|cevap"
)


def _stems(*columns: int) -> str:
    spaced = [
        row[column] for code, row in _STEMS.items() if code not in _UNSPACED for column in columns
    ]
    others = [_STEMS[code][column] for code in sorted(_UNSPACED) for column in columns]
    return rf"\b(?:{'|'.join(spaced)})|{'|'.join(others)}"


#: A request at the beginning of a clause; those of other languages, whose order varies, anywhere.
_ASKING = re.compile(
    r"(?:^|[.!:;,)\"”»]\s{1,3}(?:to )?|\b(?:please|now|and|you (?:should|must|will|need to))\s)"
    rf"{_MARKS}(?:(?:please|now|your task is to)\s)?"
    r"(?:generate|provide|create|write|suggest|give|analy[sz]e|detect|name|classify|determine|"
    r"extract|choose|pick|return|produce|translate|identify|rephrase|complete|propose|"
    r"describe|label|come up with|find|reflect|represent|(?P<sums_up>summari[sz]e|condense)|"
    rf"(?P<answers>you output|output|reply|respond|answer|what (?:is|should)))\b|{_stems(0)}",
    re.IGNORECASE | re.MULTILINE,
)
_TITLE = rf"\b(?:titled?|headline|subject line|tags?\b)|{_stems(1)}"
_ASKED_FOR = re.compile(
    rf"{_TITLE}|\b(?:summar(?:y|ies|i[sz])|emojis?|follow[- ]?ups?|search(?:es)?|quer(?:y|ies)|"
    r"keywords?|captions?|topics?|name|sentiments?|emotions?|expressions?|facts?|memor(?:y|ies)|"
    r"continuation|completion|suggestions?|standalone|labels?|language of th|"
    rf"categor(?:y|ies))|{_stems(2)}",
    re.IGNORECASE,
)
_TITLE_REQUEST = re.compile(
    rf"(?:{_ASKING.pattern})[^.\n]{{0,60}}?(?:{_TITLE})", re.IGNORECASE | re.MULTILINE
)
#: A conversation that is named.
_CHAT = re.compile(
    r"\b(?:conversations?|chats?|discussion|dialog(?:ue)?|transcript|thread|exchange|"
    r"(?:this|previous|following|above|(?:user|first|last|latest)(?:'s)?) "
    rf"(?:first |last |user )?(?:messages?|query|question|sentence))\b|{_stems(3)}",
    re.IGNORECASE,
)
#: The form that a program wants, which people do not ask for in a chat.
_FORM = re.compile(
    r"\b(?:punctuation|quot(?:ation|e) ?marks?|(?:no|without|any) quotes|lead-in|preamble|"
    r"nothing (?:else|but the)|(?:additional|extra|other) (?:text|context)|explanations?\b|"
    r"in the same language|prompt (?:for|de|di|para)\b|(?:as|un|um|a|como|come) (?:\w+ )?prompt|"
    r"(?:only|just) (?:\w+ )?(?:with )?(?:the|a) (?:\w+ )?(?:title|name|summary|topic|tags|text)|"
    r"(?:title|name|summary|topic|tags|text) (?:text )?(?:only|itself)\b|"
    rf"(?:{_LIMITS})\W{{1,3}}\w{{1,12}}[ -]?(?:{_COUNTED})|\w{{1,5}}-words?\b)"
    r"|(?:\d|\w{3,6})(?:-| to | or |–|~| bis | à | a | o | of | ou | или | ila |到|から|에서)"
    rf"(?:\w{{1,12}}|\S{{1,3}})[ -]?(?:{_COUNTED})"
    rf"|(?:{_COUNTED}) (?:max\w*|or (?:less|fewer)|ou moins|o menos|ou menos|içinde)"
    rf"|\d ?(?:{_COUNTED}) ?符?(?:以内|以內|以下|이내|内)"
    rf"|(?<![a-z])json(?![a-z])|\b(?:{_ANSWER})[^.\n]{{0,30}}\b(?:{_ONLY})\b"
    rf"|\b(?:{_ONLY}) (?:{_ANSWER})|不超[过過]"
    r"|[只仅僅](?:需要?)?(?:返回|输出|輸出|回复|给出)|(?:のみ|だけ)を?(?:返|出力)|만 ?(?:출력|반환)"
    rf"|{_stems(4)}",
    re.IGNORECASE,
)
#: A conversation that is quoted: with who said what, below a heading, or before a cue.
_QUOTED_CHAT = re.compile(
    rf"^{_MARKS}(user|human|assistant|ai|system|bot)('s)?( (first|last|message|query|response))"
    rf"{{0,2}}{_MARKS}:"
    rf"|^[^\n:]{{0,60}}\b(history|conversation|lines|messages|transcript|dialogue|chat){_MARKS}:"
    r"[ \t]{0,6}$"
    r"|\n[ \t]{0,6}(new summary|summary|title|tags|emoji|queries) ?:\s{0,6}\Z"
    r"|^message: ?(```|\"{3}|'{3})",
    re.IGNORECASE | re.MULTILINE,
)
#: What only a program writes to a model.
_TASK = re.compile(
    r"\A\s*#+\s*task\b"
    r"|</?(chat_history|conversation_history|conversation)>"
    r"|\A\W*write (your|the) next (reply|message) from the point of view of\b"
    r"|\A\W*query: history:\s*$"
    r"|\A\W*(current|recent) (chat|conversation|messages)\W*:\s*$"
    r"|\bresponses? from (various|several|multiple|different) models\b|^responses from models:"
    r"|\byou are an autocompletion system\b",
    re.IGNORECASE | re.MULTILINE,
)
_SUSPENDS = re.compile(
    r"\W{0,6}(instructions?\W{1,3})?"
    r"(ignore (all |the )?previous instructions|pause (the|your|this) role-?play)\b",
    re.IGNORECASE,
)
_TOOL_CHOICE = re.compile(r"\s*available tools\s*:", re.IGNORECASE)


def names_task(text: str) -> bool:
    """Return whether a text has what only a program writes to a model."""
    return _TASK.search(text) is not None


def asks_about_chat(text: str) -> bool:
    """Return whether a model is asked for something about a conversation, such as its title."""
    if len(text) > 2 * _MAX_SEARCHED_CHARS:
        text = text[:_MAX_SEARCHED_CHARS] + "\n" + text[-_MAX_SEARCHED_CHARS:]
    return (
        names_task(text)
        or _suspends(text)
        or (_QUOTED_CHAT.search(text) is not None and _requests(text))
        or _states_task(text)
    )


def asks_by_instructions(instructions: str, text: str) -> bool:
    """Return whether a task is in a message of the system, and the user's is what it is about."""
    return (
        _TOOL_CHOICE.match(instructions) is not None
        or _suspends(instructions)
        or (_QUOTED_CHAT.search(text) is not None and _requests(instructions))
        or (
            _TITLE_REQUEST.search(instructions[:_FORM_CHARS]) is not None
            and _states_task(instructions[: 2 * _FORM_CHARS])
        )
    )


def _suspends(text: str) -> bool:
    """Return whether a text sets the conversation aside to ask for something about it."""
    suspended = _SUSPENDS.match(text)
    return suspended is not None and _requests(text[suspended.end() :][:_REQUEST_CHARS])


def _states_task(text: str) -> bool:
    """Return whether a text asks for something of a conversation, in the form a program wants."""
    for request in _ASKING.finditer(text):
        near = text[max(0, request.start() - _SENTENCE_CHARS_BEFORE) :][:_SENTENCE_CHARS]
        if (
            _CHAT.search(near) is not None
            and (request["sums_up"] or _ASKED_FOR.search(near) is not None)
            and _FORM.search(text[max(0, request.start() - _FORM_CHARS) :][: 2 * _FORM_CHARS])
        ):
            return True
    return False


def _requests(text: str) -> bool:
    """Return whether a text asks for what is made of a conversation."""
    found = [match.start() for match in _ASKED_FOR.finditer(text)]
    for request in _ASKING.finditer(text):
        following = bisect_left(found, request.end())
        if request["sums_up"] or (
            not request["answers"]
            and following < len(found)
            and found[following] < request.end() + _REQUEST_CHARS
        ):
            return True
    return False
