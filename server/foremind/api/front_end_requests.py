"""What chat front ends send besides the words of a conversation. Pure.

They ask the model for titles, tags, searches or summaries; put the passages of files and web pages
around a question; and ask for more of the last reply. What they ask is recognised by its form, as
its words can be configured.

What chat front ends ask a model about a conversation: a title, tags, a search, a summary.

Their prompts differ, can be configured, and are in many languages. They are recognised by what they
have in common: they name or quote a conversation, ask for something that is made of it, and say in
which form a program wants it.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

from foremind.domain.errors import InvalidMessage
from foremind.domain.turn import Speaker
from foremind.domain.turn_request import EarlierTurn

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


_MAX_LINE_CHARS = 1_000  # of an instruction
#: A request of a front end for more of the last reply.
_CONTINUE = re.compile(
    r"\[\s*(please )?(continue|go on with|keep (on )?writing|extend)\b[^\[\]]*\]", re.IGNORECASE
)
#: What stands around passages: tags, and names in brackets or between rules.
_MARK = re.compile(
    r"<(/?[a-z][\w-]{0,40})(?:\s[^<>]{0,300})?>|\[([^\[\]\n]{1,200})\]|"
    r"^[-=*#~<]{2,10} ?([^\n]{1,200}?) ?[-=*#~>]{2,10}$",
    re.IGNORECASE | re.MULTILINE,
)
_FILE = (
    r"(?:files?|documents?|attachments?|web[ _-]?pages?|uploads?|"
    r"[\w-]{1,80}\.(?:txt|md|pdf|docx?|csv|json|html?))"
)
_NAMES_FILE = re.compile(rf"(?:^|[\W_]){_FILE}(?![a-z])", re.IGNORECASE)
_NAMES_PASSAGE = re.compile(
    rf"(?:^|[\W_])(?:{_FILE}|context|(?:search[_-]?)?results?|references?|sources?|knowledge|"
    r"passages?|excerpts?|snippets?|citations?|pasted|(?:file|page|url|web)[_-]?content)(?![a-z])",
    re.IGNORECASE,
)
_CLOSES = re.compile(r"^/|(?:^|[\W_])end(?![a-z])", re.IGNORECASE)
#: What begins a template or a note behind the question.
_TEMPLATE = re.compile(r"^#+ ?task\b|<!--", re.IGNORECASE | re.MULTILINE)
_COMMENT = re.compile(r"<!--[^<>]*-->")
#: What is put behind a message where the model may run code.
_TOOL_PROMPT = re.compile(r"\n#{2,6} tools available\n", re.IGNORECASE)
_USER_QUERY = re.compile(r"<(user_query|query|question)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
#: What stands before a question in a template.
_QUESTION = re.compile(
    rf"^{_MARKS}(?:(?:my|the|user(?:'s)?|current|new|latest|original) ){{0,2}}"
    rf"(?:query|question|message|request|user|q)(?: is)?{_MARKS}:\s*"
    r"|^[#\[*]{1,6} ?(?:\w+ ){0,2}(?:query|question)\W{0,6}$\s*"
    r"|\banswer (?:the|this|my) (?:\S{1,20} ){0,3}(?:question|query)\s?:\s*"
    rf"|^{_MARKS}(?:我的|用户|用戶)?(?:问题|問題|提问|消息|質問|질문|frage|pregunta|pergunta|domanda|вопрос|soru|"
    r"vraag|pytanie)(?:是|为)?\s?[:：]\s*|问题是\s?[:：]\s*",
    re.IGNORECASE | re.MULTILINE,
)
_MATERIAL = (
    r"(?:information|context|documents?|passages?|excerpts?|materials?|results?|snippets?|sources?|"
    r"knowledge|content|files?|pages?|memories|citations?)"
)
#: A line above passages that have no tags.
_PASSAGE_HEADING = re.compile(
    rf"^{_MARKS}(?!i |we |my )(?:\w+ ){{0,8}}(?:relevant|related|retrieved|reference|context|"
    r"background|search|web|knowledge|uploaded|attached|learned|following)[ -]"
    rf"(?:base |search |pieces of )?{_MATERIAL}\b[^\n:]{{0,100}}?(?::|\bbelow|"
    rf"\b(?:found|retrieved|extracted|provided|uploaded)\b[^\n:]{{0,60}}\.){_MARKS}$"
    rf"|^(?:[^.\n]{{1,80}}\. )?{_MARKS}(?:use|using|based on|given|answer|the user has)\b"
    r"[^\n]{0,60}\b(?:following|below|provided)\b"
    rf"[^\n]{{0,30}}\b{_MATERIAL}\b.*$"
    rf"|^{_MARKS}(?:context(?: \d+)?|attachments?(?: \(\d+\))?){_MARKS}:$"
    rf"|^(?:[-=*#~]{{2,10}} ?|\[)(?:(?:(?:attached |uploaded )?{_FILE}(?: name)?(?: \d+)?:|"
    rf"(?:attached|uploaded) {_FILE}\b) ?[^\n]{{0,200}}|{_FILE} ?[-=*#~\]]{{1,10}})$"
    rf"|^#+ (?:attached|uploaded) {_FILE}$"
    r"|^\W{0,6}(?:参考|參考|已知|相关|相關|背景|引用)(?:资料|資料|信息|材料|内容)\s?[:：]"
    r"|^\W{0,6}(?:検索結果|参考情報|참고 자료|검색 결과)\s?[:：]",
    re.IGNORECASE | re.MULTILINE,
)
#: Such a line if a question is marked as one below it.
_MATERIAL_LINE = re.compile(
    rf"^{_MARKS}(?:{_MATERIAL}|informa[ctç]\w*|kontext|quellen|contexte|contesto|контекст|источники)"
    r"\b[^\n:.?!]{0,20}(?:\W{0,6}:\W{0,6}|(?<=\])|)$|^#+ context$",
    re.IGNORECASE | re.MULTILINE,
)
#: A line of a template, which tells the model what to do with passages.
_INSTRUCTION = re.compile(
    rf"{_MARKS}(?:when|if|use|using|given|based|answer|respond|reply|avoid|and answer|do not|don't|"
    rf"never|always|please|cite|you are|you must|keep|only|follow|remember|in your)\b[^?？]*"
    rf"\b(?:{_MATERIAL}|question|query|answer\w*|cit(?:e|ations?)|rules|language)\b[^?？]*"
    r"|\s*(?:[-*•]|\d+[.)])\s.*|\W*#.*|\W*|(?:\w+ )?(?:answer|context|a)\s?:\s*"
    r"|.*(?:根据|基于|使用).*(?:资料|信息|语言|上下文).*|this is an? [^?]*\bcontext\b[^?]*",
    re.IGNORECASE,
)
_ATTACHED = re.compile(r"\AAttached document\(s\):\n```.*\n```(\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a request; `speaker` is None where it is an instruction to the model."""

    speaker: Speaker | None
    text: str


@dataclass(frozen=True, slots=True)
class FrontEndRequest:
    """What a front end asks.

    Attributes:
        transcript: the conversation, without what the front end has put around its messages.
        attached: passages of files or pages that belong to the last message; empty without any.
    """

    transcript: Sequence[EarlierTurn]
    attached: str = ""


def read_messages(messages: Sequence[Said]) -> FrontEndRequest:
    """Return the conversation that is to go on.

    Raises:
        InvalidMessage: the messages are a task of the front end, or not those of a conversation.
    """
    messages = [said for said in messages if said.speaker == "user" or said.text.strip()]
    last = max((number for number, said in enumerate(messages) if said.speaker), default=-1)
    if last < 0 or not messages[last].text.strip():
        raise InvalidMessage(
            "messages: expected a message of the user at the end", param="messages"
        )
    before, closing = messages[: last + 1], [said.text for said in messages[last + 1 :]]
    if _is_task(before) or any(map(asks_about_chat, closing)):
        raise a_task()
    continues = any(_CONTINUE.match(text.strip()) for text in closing)
    if _asks_to_continue(before):
        before, continues = before[:-1], True
    turns: list[EarlierTurn] = []
    attached = ""
    for said in before:
        if said.speaker == "user":
            passages, text = _taken_apart(said.text)
            if not passages:
                passages, text = _below_heading(text)
            attached = passages or attached
            turns.append(EarlierTurn("user", text))
        elif said.speaker == "companion":
            attached = ""
            turns.append(EarlierTurn("companion", said.text))
    if turns[-1].speaker == "companion" and closing and not continues:
        raise a_task()  # what is asked of the model is in a message of the system
    return FrontEndRequest(turns, attached)


def a_task() -> InvalidMessage:
    """Return the error for what a front end asks of a model besides."""
    return InvalidMessage(
        "messages: expected what the user says, not a task of the front end", param="messages"
    )


def _is_task(messages: Sequence[Said]) -> bool:
    """Return whether the last message is a task of the front end."""
    spoken = [said for said in messages if said.speaker is not None]
    if spoken[-1].speaker == "companion":
        return False
    passages, text = _taken_apart(spoken[-1].text)
    if passages or (_below_heading(text)[0] and not names_task(text[:_MAX_SEARCHED_CHARS])):
        return False
    if all(said.speaker == "user" for said in spoken):
        instructions = next((said.text for said in messages if said.speaker is None), "")
        if asks_by_instructions(instructions, text):
            return True
    return asks_about_chat(text) or asks_about_chat(text.rpartition("\n\n")[2])


def _asks_to_continue(messages: Sequence[Said]) -> bool:
    """Return whether the last message asks for more of the reply before it, in brackets."""
    spoken = [said for said in messages if said.speaker is not None]
    return (
        len(spoken) > 1
        and spoken[-1].speaker == "user"
        and spoken[-2].speaker == "companion"
        and _CONTINUE.fullmatch(spoken[-1].text.strip()) is not None
    )


def _taken_apart(text: str) -> tuple[str, str]:
    """Return the passages around a question, and the question; no passages if there are none."""
    tools = _TOOL_PROMPT.search(text)
    if tools is not None:
        text = text[: tools.start()].rstrip()
    attached = _ATTACHED.match(text)
    if attached is not None and text[attached.end() :].strip():
        return attached[0].strip(), text[attached.end() :].strip()
    passages = _passages(text)
    if passages is None:
        return "", text
    shown, after = text[passages], _COMMENT.sub("", text[passages.stop :]).strip()
    query = _USER_QUERY.match(after)
    if query is not None:
        return shown, after[query.end() :].strip() or query[2].strip()
    if not after:  # the question is before the template
        after = _TEMPLATE.split(text[: passages.start], maxsplit=1)[0].strip()
    question = _question_in(after)
    return (shown, question) if question else ("", text)


def _passages(text: str) -> slice | None:
    """Return where passages stand in a text, from their first mark to the last that closes them."""
    start = end = -1
    for mark in _MARK.finditer(text):
        name = mark[1] or mark[2] or mark[3]
        if not (_NAMES_PASSAGE if mark[1] else _NAMES_FILE).search(name):
            continue
        if _CLOSES.search(name):
            end = mark.end()
        elif start < 0:
            start = mark.start()
    return slice(start, end) if 0 <= start < end else None


def _below_heading(text: str) -> tuple[str, str]:
    """Return passages that have no tags, and the question; no passages if there are none."""
    heading = _PASSAGE_HEADING.search(text)
    if heading is None:
        heading = _MATERIAL_LINE.search(text)
        if heading is None or _QUESTION.search(text, heading.end()) is None:
            return "", text
    before, after = text[: heading.start()].strip(), text[heading.end() :].strip()
    question = _question_in(before)
    if question:
        return text[heading.start() :], question
    labels = list(_QUESTION.finditer(after, len(after) - _MAX_SEARCHED_CHARS))
    begins = labels[-1].start() if labels else _last_paragraph(after)
    question = _question_in(after[begins:])
    if not question or begins == 0:
        return "", text
    behind = after[after.find(question, begins) + len(question) :]
    return (after[:begins] + behind).strip(), question


def _last_paragraph(text: str) -> int:
    """Return where the last paragraph begins that is no instruction; 0 if it is the first."""
    end = len(text)
    while (begins := text.rfind("\n\n", 0, end)) >= 0:
        if not all(map(_is_instruction, text[begins:end].splitlines())):
            return begins
        end = begins
    return 0


def _question_in(text: str) -> str:
    """Return the question of a template, without the instructions around it; empty without one."""
    labels = list(_QUESTION.finditer(text, max(0, len(text) - _MAX_SEARCHED_CHARS)))
    if labels:
        text = text[labels[-1].end() :]
        heading = _PASSAGE_HEADING.search(text)
        text = text[: heading.start()] if heading is not None else text
    lines = text.splitlines()
    lines = list(dropwhile(_is_instruction, lines))
    return "\n".join([*dropwhile(_is_instruction, reversed(lines))][::-1]).strip()


def _is_instruction(line: str) -> bool:
    return len(line) <= _MAX_LINE_CHARS and _INSTRUCTION.fullmatch(line) is not None
