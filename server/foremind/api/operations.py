"""The operations of the HTTP API: what each takes and returns. Pure.

`contract_enforcement` refuses what is not described here; `openapi` publishes the descriptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foremind.api.admin_routes import (
    CardDetail,
    CompanionBody,
    CompanionDetail,
    Revocation,
    Revoked,
)
from foremind.api.chat_completion_shapes import (
    ChatCompletion,
    ChatCompletionRequest,
    ModelList,
    ModelView,
)
from foremind.api.event_routes import EventsBody, StoredEvents
from foremind.api.mcp_routes import JsonRpcAnswer, JsonRpcMessage
from foremind.api.memory_routes import Correction
from foremind.api.record_routes import RecordBody, RecordPatch, RevisionBody
from foremind.api.relationship_routes import Config, StateBody, StateView
from foremind.api.response_shapes import (
    AuditPage,
    Companions,
    CompanionView,
    CreatedResponse,
    Documents,
    DoneResponse,
    MemoryPage,
    OpenSessions,
    Records,
    RelationshipView,
    Revisions,
    Sessions,
    Status,
    TurnPage,
)
from foremind.api.turn_shapes import (
    ChooseBody,
    ChosenAnswer,
    EditBody,
    RegenerateBody,
    TurnAnswer,
    TurnBody,
)
from foremind.api.user_routes import UserExport
from foremind.cards.card_file import FORMATS
from foremind.domain.document import Document
from foremind.domain.export_file import Export
from foremind.domain.record import RECORD_LAYERS
from foremind.memory.erase import ErasureReceipt, UserErasureReceipt
from foremind.retrieval.documents.text_extraction import MEDIA_TYPES

TEXT: dict[str, Any] = {"type": "string"}
#: Ids are strings in paths and queries, as they are in JSON.
ID: dict[str, Any] = {"type": "string", "pattern": "^[0-9]{1,18}$"}

_DRY_RUN: dict[str, Any] = {"type": "boolean", "default": False} | {
    "description": "Only count what would be erased."
}
_USER = TEXT | {
    "description": "In open mode, the user who makes the request. With a token of scope `admin`, "
    "the user on whose behalf it is made. With any other token only its own user.",
}
_PAGE: dict[str, dict[str, Any]] = {
    "after": ID
    | {"description": "Return what follows this id: `next_after` of the page before. Default: 0."},
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
        "description": "The maximum number of elements of the page. Default: 100.",
    },
}
_USERS = "/v1/users/{id}"
_RELATIONSHIPS = "/v1/relationships"
_RELATIONSHIP = "/v1/relationships/{id}"
_DOCUMENTS = "/v1/companions/{slug}/documents"
_ADMIN = "/v1/admin"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    Attributes:
        response: the shape of the response with `status`.
        body: the shape of the request body; `bytes` for a document, None for no body.
        query: the schemas of query parameters by name, other than `user`.
        required: the names of query parameters that must be given.
        scope: the scope that a token needs; "" for any token, None if no token is needed.
        media_type: of the response with `status`.
        other_responses: shapes of JSON responses with other statuses that are not errors.
        file_types: media types that the request body may have instead of JSON; or, where there is
            no body, the response with `status`.
    """

    method: str
    path: str
    summary: str
    description: str
    response: Any
    status: int = 200
    body: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    scope: str | None = "memory:read"
    media_type: str = "application/json"
    other_responses: Mapping[int, Any] = field(default_factory=dict)
    file_types: tuple[str, ...] = ()

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The schemas of all query parameters by name."""
        return self.query if self.scope is None else {**self.query, "user": _USER}

    @property
    def media_types(self) -> tuple[str, ...]:
        """The accepted media types of the request body."""
        if self.body is bytes:
            return MEDIA_TYPES
        return ("application/json", *(self.file_types if self.body is not None else ()))


_SERVER_OPERATIONS = (
    Operation(
        "GET",
        "/healthz",
        "Check liveness",
        "Answers for as long as the process can serve requests, and checks nothing else.",
        DoneResponse,
        scope=None,
    ),
    Operation(
        "GET",
        "/readyz",
        "Check readiness",
        "Checks everything that a message needs. Each of `model`, `database`, `migrations`, "
        "`background` and `server`, and `embedding_server` where one is configured, is `ok` or "
        "describes the problem; `status` is `ok` with 200, or `unavailable` with 503. A problem "
        "that begins with `degraded: ` makes the server slower and leaves the status at 200. "
        "Checks that cost time run at most once a second.",
        dict[str, str],
        scope=None,
        other_responses={503: dict[str, str]},
    ),
    Operation(
        "GET",
        "/metrics",
        "Get metrics",
        "Returns the metrics of this process in the Prometheus text format.",
        str,
        media_type="text/plain",
        scope="metrics",
    ),
    Operation(
        "GET",
        "/v1/companions",
        "List companions",
        "Returns the companions that the token allows, or all of them in open mode.",
        list[CompanionView],
        scope="",
    ),
    Operation(
        "GET",
        "/v1/asyncapi.json",
        "Get the WebSocket contract",
        "Returns the AsyncAPI 3 document that describes the WebSocket at `/v1/ws`.",
        dict[str, Any],
        scope=None,
    ),
    Operation(
        "GET",
        "/v1/openapi.json",
        "Get the HTTP contract",
        "Returns this document.",
        dict[str, Any],
        scope=None,
    ),
    Operation(
        "GET",
        "/v1/schemas/export",
        "Get the export schema",
        "Returns the JSON Schema of a relationship's export.",
        dict[str, Any],
        scope="",
    ),
)

_CHAT_OPERATIONS = (
    Operation(
        "GET",
        "/v1/models",
        "List companions as models",
        "As OpenAI's `GET /v1/models`: the companions that the token allows, or all of them in "
        "open mode.",
        ModelList,
        scope="",
    ),
    Operation(
        "GET",
        "/v1/models/{slug}",
        "Get a companion as a model",
        "As OpenAI's `GET /v1/models/{model}`: the companion with this slug.",
        ModelView,
        scope="",
    ),
    Operation(
        "POST",
        "/v1/chat/completions",
        "Complete a chat",
        "As OpenAI's chat completions: answers the last message of a conversation that is sent "
        "whole, and stores each turn once. What no longer stands in the conversation, such as a "
        "reply that is to be made anew, is erased with what was derived from it. Fields that are "
        "not described are ignored. With `stream`, the reply is sent as server-sent events, each "
        "a `ChatCompletionChunk`, and `[DONE]` at the end. `X-Foremind-Recalled` states how many "
        "memories the prompt had, `X-Foremind-Recalled-Ids` which, for a token with the scope "
        "`memory:read`, `X-Foremind-Context` the kind of context and `X-Foremind-Turn` the id of "
        "the stored turn.",
        ChatCompletion,
        body=ChatCompletionRequest,
        scope="chat",
    ),
)

_TURN_OPERATIONS = (
    Operation(
        "POST",
        "/v1/turns",
        "Make a turn",
        "Stores a message and returns the reply, without a WebSocket. The same `id` again returns "
        "the stored reply, or waits for it, and with another text is refused (409). With `accept: "
        "text/event-stream`, what happens is sent as server-sent events, each named as on the "
        "WebSocket. A client that leaves stops the reply. With a token of scope `host` or `admin`, "
        "or in open mode, `user` names the player; any other token names its own.",
        TurnAnswer,
        body=TurnBody,
        scope="chat",
    ),
    Operation(
        "POST",
        "/v1/turns/edit",
        "Edit the last message",
        "Stores a message in place of the last one of the session, which is erased with its "
        "replies and all that was derived from them, and returns the reply as `POST /v1/turns` "
        "does. 400 with the code `not_last_message` or `nothing_said` if `message_id` does not "
        "name that message. The same `id` again changes nothing.",
        TurnAnswer,
        body=EditBody,
        scope="chat",
    ),
    Operation(
        "POST",
        "/v1/turns/regenerate",
        "Make another reply",
        "Makes another reply to the last message of the session, and returns it as `POST "
        "/v1/turns` does. The one before is forgotten, and can be chosen again. The same `id` "
        "again makes no further reply. `message_id` is checked as for an edit.",
        TurnAnswer,
        body=RegenerateBody,
        scope="chat",
    ),
    Operation(
        "POST",
        "/v1/turns/choose",
        "Choose a reply",
        "Lets one of the replies to the last message of the session stand, and returns it. The "
        "one before is forgotten, and can be chosen again. `message_id` is checked as for an edit.",
        ChosenAnswer,
        body=ChooseBody,
        scope="chat",
    ),
)

_MCP_OPERATIONS = (
    Operation(
        "POST",
        "/v1/mcp",
        "Call a memory tool",
        "The Model Context Protocol over streamable HTTP, without sessions: a message is answered "
        "as JSON, a notification with 202. The tools `recall`, `remember`, `correct`, `forget` and "
        "`context` need the scopes `memory:read` or `memory:write`. 404 unless the server runs "
        "with `FOREMIND_MCP`.",
        JsonRpcAnswer,
        body=JsonRpcMessage,
        scope="",
    ),
)

_USER_OPERATIONS = (
    Operation(
        "GET",
        f"{_USERS}/export",
        "Export a user",
        "Returns everything stored about the user, with every companion, as one JSON file. Only "
        "for the user itself, with a token that is not restricted to some companions, or with the "
        "scope `admin`. The export is recorded in the audit trail of every relationship. A user "
        "may have two exports in flight.",
        UserExport,
    ),
    Operation(
        "DELETE",
        _USERS,
        "Erase a user",
        "Permanently erases the user with every companion: relationships, sessions, turns, "
        "memories, records, settings, audit trails, id, name and time zone. Their sessions are "
        "closed with 4403 in every process. Token revocations stay in force under a pseudonym. "
        "Only for the user itself, with a token that is not restricted to some companions, or "
        "with the scope `admin`. The erasure is recorded first: if the request is interrupted, the "
        "server finishes it. Until it has, the same request waits for it, and returns the receipt.",
        UserErasureReceipt,
        scope="memory:write",
    ),
)

_RELATIONSHIP_OPERATIONS = (
    Operation(
        "GET",
        _RELATIONSHIPS,
        "List relationships",
        "Returns the user's relationships with the companions that the token allows.",
        list[RelationshipView],
    ),
    Operation(
        "POST",
        f"{_RELATIONSHIPS}/import",
        "Import a relationship",
        "Restores a relationship from its export, also from another server with another embedding "
        "model. Nothing may have been said with the companion yet (409). Everything in the file "
        "is validated, and nothing is stored if anything is invalid. Vectors are computed again, "
        "and the audit trail is not imported. Records made by the `developer` become the user's, "
        "unless the token has the scope `admin`.",
        CreatedResponse,
        201,
        body=Export,
        query={
            "companion": TEXT
            | {"description": "The slug of the companion. Default: the one named in the file."}
        },
        scope="memory:write",
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/export",
        "Export a relationship",
        "Returns the whole relationship as one JSON file, which can be imported again: sessions, "
        "turns, memories, records with their sources and earlier revisions, the audit trail, and "
        "the progress of the background work. Vectors are not included. A user may have two "
        "exports in flight.",
        Export,
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/config",
        "Get settings",
        "Returns every setting in force as `value`, with the level that sets it as `from`: "
        "`relationship`, `companion` or `server`. Also returns `consented`, whether the user has "
        "agreed to be remembered.",
        dict[str, Any],
    ),
    Operation(
        "PATCH",
        f"{_RELATIONSHIP}/config",
        "Change settings",
        "Applies a JSON merge patch (RFC 7396) to the relationship's own settings. A null setting "
        "is removed, so that the companion's or server's applies; null for `settings` removes "
        "all. With the scope `admin`, the operator's settings for the relationship are changed "
        "instead; they replace the user's, and limit what the user can set later. Open sessions "
        "use the new settings at once. Returns the settings in force, or an empty object without "
        "the scope `memory:read`.",
        dict[str, Any],
        body=Config,
        scope="memory:write",
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/sessions",
        "List sessions",
        "Returns the last 200 sessions that have turns, newest first.",
        Sessions,
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/turns",
        "List turns",
        "Returns a page of the transcript in ascending order of id. `memory` is the id of the "
        "memory that a turn is part of; it is null if the turn was not kept as a memory.",
        TurnPage,
        query=_PAGE
        | {
            "session": TEXT
            | {"description": "The id of a session (UUID). Default: turns of all sessions."}
        },
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/status",
        "Get background status",
        "Returns the state of every step of the background work, such as notes, episodes and "
        "topics, with its last error and the turns that it has yet to process.",
        Status,
    ),
    Operation(
        "POST",
        f"{_RELATIONSHIP}/status",
        "Run background work now",
        "Schedules all pending steps at once, including those that are backing off or held after "
        "failures. Returns before they have run.",
        DoneResponse,
        202,
        scope="memory:write",
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/state",
        "Get the session state",
        "Returns the task and flags of the active session. `session` is null if there is none.",
        StateView,
    ),
    Operation(
        "PATCH",
        f"{_RELATIONSHIP}/state",
        "Change the session state",
        "Applies a JSON merge patch to the task and flags of the active session; null removes the "
        "task or a flag. 404 if no session is active. Returns the new state, or an empty object "
        "without the scope `memory:read`.",
        dict[str, Any],
        body=StateBody,
        scope="memory:write",
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/context",
        "Preview the context of a draft",
        "Returns exactly the prompt that the language model would be given if the user sent the "
        "draft now: its messages, their token counts and the token budget, the memories "
        "retrieved, what every layer contributed or left out, the active entries of the "
        "companion's lorebook, and timings in milliseconds. The language model is not called and "
        "nothing is stored.",
        dict[str, Any],
        query={"draft": TEXT | {"description": "The text of the draft."}},
        required=frozenset({"draft"}),
    ),
)

_MEMORY_OPERATIONS = (
    Operation(
        "POST",
        f"{_RELATIONSHIP}/events",
        "Report what happened",
        "Stores what happened around the relationship, which nobody said: each becomes a memory of "
        "its `type` that prompts narrate, and is not part of the transcript. Answers when all of "
        "them are stored; the same `id` again changes nothing. If one is invalid, none is stored. "
        "`turn_id` is what erases it, as `turn` of `DELETE .../memories`. 409 where the companion "
        "asks for a consent that the user has not given.",
        StoredEvents,
        body=EventsBody,
        scope="memory:write",
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/memories",
        "List memories",
        "Returns a page of memories in ascending order of id, each with its significance and the "
        "reasons for it.",
        MemoryPage,
        query=_PAGE,
    ),
    Operation(
        "DELETE",
        f"{_RELATIONSHIP}/memories",
        "Erase memories",
        "Permanently erases what at most one of `session`, `turn` and `about` selects; without "
        "any, the whole content of the relationship, including its settings. The companion's "
        "replies that repeat it, and all records derived from it, are erased too, then rebuilt "
        "from the remaining sources; a reply in progress is stopped and not kept. Large erasures "
        "run in several transactions, and the receipt follows the last: without a receipt, repeat "
        "the request to erase the remainder. With `dry_run` nothing is erased, and the receipt "
        "counts what would be.",
        ErasureReceipt,
        query={
            "session": TEXT | {"description": "Erase what was said in the session with this id."},
            "about": TEXT
            | {
                "description": "Erase every turn and record that contains all of these words. Stop "
                "words do not count, unless they are capitalised or in quotation marks. Without "
                "another word the request is refused."
            },
            "turn": ID | {"description": "Erase the turn with this id."},
            "dry_run": _DRY_RUN,
        },
        scope="memory:write",
    ),
    Operation(
        "PATCH",
        f"{_RELATIONSHIP}/memories/{{memory}}",
        "Correct a memory",
        "Replaces the content of the memory and of the turns that it was made from. It is "
        "embedded and indexed again at once.",
        DoneResponse,
        body=Correction,
        scope="memory:write",
    ),
    Operation(
        "DELETE",
        f"{_RELATIONSHIP}/memories/{{memory}}",
        "Erase a memory",
        "Permanently erases the memory with its turns, the companion's replies that repeat it, "
        "and all records derived from it, which are rebuilt from the remaining sources. With "
        "`dry_run` nothing is erased, and the receipt counts what would be.",
        ErasureReceipt,
        query={"dry_run": _DRY_RUN},
        scope="memory:write",
    ),
)

_RECORD_OPERATIONS = (
    Operation(
        "GET",
        f"{_RELATIONSHIP}/records",
        "List records",
        "Returns the records of the memory layers, such as profile, notes and episodes. `used` "
        "counts the reply prompts that contained a record, `used_at` is the time of the last one; "
        "both lag by some seconds.",
        Records,
        query={
            "layer": {
                "type": "string",
                "enum": list(RECORD_LAYERS),
                "description": "Return the records of this layer only. Default: all layers.",
            }
        },
    ),
    Operation(
        "POST",
        f"{_RELATIONSHIP}/records",
        "Create a record",
        "Writes a record in the user's name, or in the developer's with `by: developer` and the "
        "scope `admin`. In a layer or profile slot that holds a single record, it replaces that "
        "one. 413 if all records of the relationship would exceed 16 MiB.",
        CreatedResponse,
        201,
        body=RecordBody,
        scope="memory:write",
    ),
    Operation(
        "PATCH",
        f"{_RELATIONSHIP}/records/{{record}}",
        "Change a record",
        "Changes the fields that are given. With `revision`, the record is changed only if that "
        "is still its current revision (409 otherwise). `status` applies to questions only.",
        DoneResponse,
        body=RecordPatch,
        scope="memory:write",
    ),
    Operation(
        "DELETE",
        f"{_RELATIONSHIP}/records/{{record}}",
        "Erase a record",
        "Permanently erases the record and everything derived from it. Background work does not "
        "create it again from what was said before.",
        ErasureReceipt,
        scope="memory:write",
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/records/{{record}}/revisions",
        "List revisions of a record",
        "Returns up to 20 earlier revisions, and the number of the current one.",
        Revisions,
    ),
    Operation(
        "POST",
        f"{_RELATIONSHIP}/records/{{record}}/restore",
        "Restore a revision of a record",
        "Makes an earlier revision the record's current content, as a new revision.",
        DoneResponse,
        body=RevisionBody,
        scope="memory:write",
    ),
    Operation(
        "GET",
        f"{_RELATIONSHIP}/audit",
        "List the audit trail",
        "Returns a page of the audit trail: who read or changed what, and when, but never the "
        "content.",
        AuditPage,
        query=_PAGE,
    ),
)

_DOCUMENT_OPERATIONS = (
    Operation(
        "GET",
        _DOCUMENTS,
        "List documents",
        "Returns the documents of the companion's reference library. `embedded` of a document's "
        "`chunks` are available to vector search already.",
        Documents,
        scope="admin",
    ),
    Operation(
        "POST",
        _DOCUMENTS,
        "Add a document",
        "Adds a document of at most 20 MB to the companion's reference library. The body is the "
        "document itself, and `content-type` its media type. Returns before the document has been "
        "embedded, from when on it is searched.",
        Document,
        202,
        body=bytes,
        query={"title": TEXT | {"description": "The title, 1 to 200 characters."}},
        required=frozenset({"title"}),
        scope="admin",
    ),
    Operation(
        "DELETE",
        f"{_DOCUMENTS}/{{document}}",
        "Remove a document",
        "Removes a document from the companion's reference library.",
        DoneResponse,
        scope="admin",
    ),
)

_ADMIN_OPERATIONS = (
    Operation(
        "GET",
        f"{_ADMIN}/companions",
        "List companions for operators",
        "Returns every companion that is not retired, with its persona, settings and version.",
        Companions,
        scope="admin",
    ),
    Operation(
        "PUT",
        f"{_ADMIN}/companions/{{slug}}",
        "Create or replace a companion",
        "Creates the companion, or replaces its name, persona, greeting and settings. Open "
        "sessions use the new version at once. `version` increases with every change.",
        CompanionDetail,
        body=CompanionBody,
        scope="admin",
    ),
    Operation(
        "DELETE",
        f"{_ADMIN}/companions/{{slug}}",
        "Retire a companion",
        "No more sessions can be opened with the companion, until it is created again with PUT. "
        "Its users keep what was said, and can still read, export and erase it.",
        DoneResponse,
        scope="admin",
    ),
    Operation(
        "PUT",
        f"{_ADMIN}/companions/{{slug}}/card",
        "Create or replace a companion by a character card",
        "Takes a Character Card of version 1, 2 or 3, of at most 20 MB: JSON, PNG, APNG or CHARX, "
        "known by its first bytes. Name, persona and greeting become those of the card, which is "
        "kept; a companion that exists keeps its settings. Open sessions use it at once. `notices` "
        "lists what is not as the specifications say, and was read as far as it can be.",
        CompanionDetail,
        body=dict[str, Any],
        file_types=("image/png", "image/apng", "application/zip", "application/octet-stream"),
        scope="admin",
    ),
    Operation(
        "POST",
        f"{_ADMIN}/cards",
        "Read a character card",
        "Reads a file as PUT of a card does, and stores nothing: what the card says, and the slug "
        "that its name makes, which may be empty.",
        CardDetail,
        body=dict[str, Any],
        query={
            "name": {
                "type": "string",
                "description": "The name of a character whose card has none.",
            }
        },
        file_types=("image/png", "image/apng", "application/zip", "application/octet-stream"),
        scope="admin",
    ),
    Operation(
        "GET",
        f"{_ADMIN}/companions/{{slug}}/card",
        "Get a companion's character card",
        "Returns the card that the companion was made of, its `data` as it was given; or, for a "
        "companion that was none's, a card of version 2 made of it.",
        dict[str, Any],
        query={
            "as": {
                "type": "string",
                "enum": list(FORMATS),
                "description": "The format of the file. Default: `json`.",
            }
        },
        file_types=("image/png", "application/zip"),
        scope="admin",
    ),
    Operation(
        "GET",
        f"{_ADMIN}/sessions",
        "List open sessions",
        "Returns the sessions of the process that answers.",
        OpenSessions,
        scope="admin",
    ),
    Operation(
        "DELETE",
        f"{_ADMIN}/sessions/{{session}}",
        "End a session",
        "Ends a session of the process that answers, and closes its connection with 4403.",
        DoneResponse,
        scope="admin",
    ),
    Operation(
        "POST",
        f"{_ADMIN}/revocations",
        "Revoke tokens",
        "Revokes one token of a user by its `jti`, or all tokens issued so far, in every process "
        "and at once. Because the clock of the server that issues tokens may be ahead, tokens "
        "that claim to be issued up to `issued_until`, half a minute from now, are revoked too: "
        "to let the user in again, issue a token after that.",
        Revoked,
        201,
        body=Revocation,
        scope="admin",
    ),
    Operation(
        "POST",
        f"{_ADMIN}/drain",
        "Drain the process",
        "Stops accepting sessions, gives replies in progress `FOREMIND_DRAIN_S` seconds to "
        "finish, and then closes all connections with 4503. Returns at once. For use before a "
        "shutdown: there is no way back.",
        DoneResponse,
        202,
        scope="admin",
    ),
)

OPERATIONS = (
    *_SERVER_OPERATIONS,
    *_CHAT_OPERATIONS,
    *_TURN_OPERATIONS,
    *_MCP_OPERATIONS,
    *_USER_OPERATIONS,
    *_RELATIONSHIP_OPERATIONS,
    *_MEMORY_OPERATIONS,
    *_RECORD_OPERATIONS,
    *_DOCUMENT_OPERATIONS,
    *_ADMIN_OPERATIONS,
)
