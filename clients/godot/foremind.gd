extends Node
## A conversation with a companion of Foremind, or in a scene of a world, for an autoload named
## Foremind.
##
## A lost connection is resumed, or the scene joined again, and a message is sent again until the
## server has stored it.
## Redirects to other gateways are not followed: any gateway serves any session.

## Every event of the server, as the contract describes it. Its numbers are floats, as in any JSON.
signal event_received(event: Dictionary)
## "connecting", "open", "waiting" (until the next attempt) or "closed" (for good).
signal state_changed(state: String, code: int, reason: String)

const Protocol := preload("foremind_protocol.gd")
const MERGE_S := 0.05  # what the protocol allows a client to hold keystrokes back
const FIRST_RETRY_S := 0.25
const LAST_RETRY_S := 15.0
const MAX_DOUBLINGS := 16  # more than reach the last delay
const RESUBMIT_S := 1.0  # after a retryable error
const ANSWER_TIMEOUT_S := 30.0  # to open a session, or to store a message
const MAX_UNACCEPTED := 16  # messages kept for sending again
const MAX_REPORTS := 8  # requests for one report
const MAX_FRAME_BYTES := 65536  # the server closes connections that exceed it
const INBOUND_BYTES := 1048576  # `session.opened` may hold thirty long turns
const FINAL_CODES: Array[int] = [4400, 4401, 4403, 4409]

## The socket of the server.
var url := "ws://127.0.0.1:8770/v1/ws"
## The slug of the companion.
var companion := ""
## In place of a companion, a world, and the scene of it that is joined.
var world := ""
var scene := ""
## A signed token; empty where the server runs open. It is read for every connection.
var token := ""
## Who plays, where there is no token.
var user_id := ""
## What the companion calls the player, where there is no token.
var user_name := ""
## Whether `context.ready` is received: what was prepared for a draft, for a game that shows it.
var contexts := false
## Whether `response.sentence` is received: each sentence of a reply, for a voice.
var sentences := false

var _socket: WebSocketPeer = null
var _wanted := false  # between `open` and `close`
var _greeted := false  # `session.open` was sent on this connection
var _opened := false
var _session_id := ""
var _seq := 0
var _failures := 0  # in a row
var _opened_ms := 0
var _retry_s := 0.0  # until the next attempt
var _silent_s := 0.0  # for which an answer has been awaited
var _draft := {}
var _draft_s := -1.0  # until the draft is told; negative if there is none
var _unaccepted := {}  # message id -> its message, in order
var _resubmit_s := {}  # message id -> seconds until it is sent again


func _process(delta: float) -> void:
	if _socket == null:
		_wait_for_retry(delta)
		return
	_socket.poll()
	if _socket.get_ready_state() == WebSocketPeer.STATE_OPEN and not _greeted:
		_greet()
	while _socket != null and _socket.get_available_packet_count() > 0:
		_read(_socket.get_packet().get_string_from_utf8())
	if _socket == null:
		return
	if _socket.get_ready_state() == WebSocketPeer.STATE_CLOSED:
		_lose(_socket.get_close_code(), _socket.get_close_reason())
		return
	_tell_draft(delta)
	_submit_again(delta)
	_watch_silence(delta)


## Connect, and stay connected until `close`.
func open() -> void:
	if _socket != null:
		return
	var joins := not (world.is_empty() and scene.is_empty())
	if companion.is_empty() != joins or world.is_empty() != scene.is_empty():
		push_error("Foremind: companion: expected the slug of a companion, or world and scene")
		return
	_wanted = true
	_dial()


## Leave for good. Messages that are not stored are kept for a later `open`.
func close() -> void:
	_wanted = false
	_failures = 0
	_hang_up()
	state_changed.emit("closed", 1000, "")


## Tell the whole draft as it now stands; call it whenever the text changes.
## `optional` is as of `send`, as far as it is known.
func type(text: String, optional := {}) -> void:
	_draft = Protocol.draft_update(text, optional)
	if _draft_s < 0.0:
		_draft_s = MERGE_S


## Tell that the player discarded the draft.
func clear() -> void:
	_draft_s = -1.0
	_write(Protocol.draft_clear())


## Send a message, and again after a lost connection until the server has stored it. Returns its id,
## or an empty text, with an error in the log, if it fits no frame or too many others wait.
## In a scene, `optional` may say to whom it is said ("to") and how loud ("volume").
func send(text: String, optional := {}) -> String:
	return _keep(Protocol.message_send(_new_id(), text, optional))


## Put another text in the place of the last message, which is forgotten with its replies.
## As `send`.
func edit(message_id: String, text: String, optional := {}) -> String:
	return _keep(Protocol.message_edit(_new_id(), message_id, text, optional))


## Ask for another reply to the last message; those before can be chosen again. As `send`.
func regenerate(message_id: String, optional := {}) -> String:
	return _keep(Protocol.response_regenerate(_new_id(), message_id, optional))


## Choose which reply to the last message stands; `response.chosen` says that it does.
func choose(message_id: String, index: int) -> void:
	_write(Protocol.response_choose(message_id, index))


## Stop a reply; its id is in `response.created`.
func cancel(response_id: String) -> void:
	_write(Protocol.response_cancel(response_id))


## Tell a mind what came of an action, as the game server of its world; the first result counts.
## Returns what `action.accepted`, or an error, has as `event_id`; otherwise as `send`.
func answer_action(id: String, result: Variant) -> String:
	return _keep(Protocol.action_result(id, result))


## Report what happens in the world, as its game server; also without a connection. `await` it: it
## returns the stored "events", or an "error" with "code" and "message". After a failure that may
## pass it is sent again: no event is stored twice.
func report(events: Array) -> Dictionary:
	var body := JSON.stringify({"events": events})
	var answer := {}
	for failures: int in MAX_REPORTS:
		answer = await _post_events(body)
		var error: Dictionary = answer.get("error", {})
		if not error.get("retryable", false) or failures == MAX_REPORTS - 1:
			break
		var least_s: Variant = error.get("retry_after_s")
		var wait_s := randf() * _longest_retry_s(failures)
		if least_s != null:
			wait_s += float(least_s)
		await get_tree().create_timer(wait_s).timeout
	return answer


## Give the session a fresh token before the present one expires.
## In a scene it holds from the next connection on.
func renew(fresh_token: String) -> void:
	token = fresh_token
	if world.is_empty():
		_write(Protocol.session_update({"token": token}))


func _wait_for_retry(delta: float) -> void:
	if not _wanted:
		return
	_retry_s -= delta
	if _retry_s <= 0.0:
		_dial()


func _dial() -> void:
	state_changed.emit("connecting", 0, "")
	_socket = WebSocketPeer.new()
	_socket.inbound_buffer_size = INBOUND_BYTES
	_socket.outbound_buffer_size = INBOUND_BYTES
	_greeted = false
	_silent_s = 0.0
	var failure := _socket.connect_to_url(url)
	if failure != OK:
		_lose(0, error_string(failure))


func _greet() -> void:
	_greeted = true
	var who := {"contexts": contexts, "sentences": sentences}
	if world.is_empty():
		who["companion"] = companion
	else:
		who.merge({"world": world, "scene": scene})
	if token.is_empty():
		who["user"] = {"id": user_id, "name": user_id if user_name.is_empty() else user_name}
	else:
		who["token"] = token
	if world.is_empty() and not _session_id.is_empty():
		who["resume"] = {"session_id": _session_id, "seq": _seq}
	_socket.send_text(JSON.stringify(Protocol.session_open(who)))


func _read(text: String) -> void:
	var parsed: Variant = JSON.parse_string(text)
	if not parsed is Dictionary:
		return
	var event: Dictionary = parsed
	_silent_s = 0.0
	var was_opened := _opened
	if event["type"] == Protocol.SESSION_OPENED:
		_opened = true
		_opened_ms = Time.get_ticks_msec()
		_session_id = event["session_id"]
		state_changed.emit("open", 0, "")
	if _opened:
		_seq = int(event["seq"])
	match event["type"]:
		Protocol.MESSAGE_ACCEPTED:
			_accept(event["id"])
		Protocol.ACTION_ACCEPTED:
			_forget(str(event["event_id"]))
		Protocol.ERROR:
			_take_error(event["error"])
	event_received.emit(event)
	if _opened and not was_opened:
		for id: String in _unaccepted:
			_submit(id)


func _take_error(error: Dictionary) -> void:
	var id: Variant = error["event_id"]
	if id != null and _unaccepted.has(id):
		if error["retryable"]:
			_resubmit_s[id] = RESUBMIT_S
		else:
			_forget(id)
	# What is wrong with a token is told by the close code that follows.
	if _opened or error["code"] == "not_authenticated":
		return
	_wanted = _wanted and error["retryable"]
	_lose(0, error["message"])


func _lose(code: int, reason: String) -> void:
	# A server that closes whatever it opens is asked less and less often.
	if _opened and Time.get_ticks_msec() - _opened_ms > _longest_retry_s(_failures - 1) * 1000.0:
		_failures = 0
	_hang_up()
	if not _wanted or code in FINAL_CODES:
		_wanted = false
		state_changed.emit("closed", code, reason)
		return
	# Full jitter: clients that lost the same server do not come back at the same moment.
	_retry_s = randf() * _longest_retry_s(_failures)
	_failures += 1
	state_changed.emit("waiting", code, reason)


func _longest_retry_s(failures: int) -> float:
	return minf(LAST_RETRY_S, FIRST_RETRY_S * pow(2.0, mini(failures, MAX_DOUBLINGS)))


func _hang_up() -> void:
	_opened = false
	_draft_s = -1.0
	_resubmit_s.clear()
	if _socket != null:
		_socket.close()
		_socket = null


func _tell_draft(delta: float) -> void:
	if _draft_s < 0.0:
		return
	_draft_s -= delta
	if _draft_s < 0.0:
		if _fits(_draft):
			_write(_draft)


func _submit_again(delta: float) -> void:
	for id: String in _resubmit_s.keys():
		_resubmit_s[id] -= delta
		if _resubmit_s[id] <= 0.0:
			_resubmit_s.erase(id)
			_submit(id)


## The server may be gone without a word.
func _watch_silence(delta: float) -> void:
	if _opened and _unaccepted.is_empty():
		_silent_s = 0.0
		return
	_silent_s += delta
	if _silent_s > ANSWER_TIMEOUT_S:
		_lose(0, "the server does not answer")


func _submit(id: String) -> void:
	_write(_unaccepted[id])


## The server has stored a message, or is answering it again.
func _accept(message_id: String) -> void:
	_forget(message_id)
	for id: String in _unaccepted.keys():
		var message: Dictionary = _unaccepted[id]
		if message["type"] == "response.regenerate" and message["message_id"] == message_id:
			_forget(id)


func _forget(id: String) -> void:
	_unaccepted.erase(id)
	_resubmit_s.erase(id)


func _fits(message: Dictionary) -> bool:
	return JSON.stringify(message).to_utf8_buffer().size() <= MAX_FRAME_BYTES


func _write(message: Dictionary) -> void:
	if _opened:
		_socket.send_text(JSON.stringify(message))


func _new_id() -> String:
	return Crypto.new().generate_random_bytes(16).hex_encode()


func _keep(message: Dictionary) -> String:
	if _unaccepted.size() >= MAX_UNACCEPTED:
		push_error("Foremind: at most %d messages may wait for the server" % MAX_UNACCEPTED)
		return ""
	var is_result: bool = message["type"] == "action.result"
	var id: String = _new_id() if is_result else message["id"]
	message["event_id"] = id  # so that an error can be told to be about it
	if not _fits(message):
		var field := "result" if is_result else "text"
		push_error("Foremind: %s: expected at most %d bytes" % [field, MAX_FRAME_BYTES])
		return ""
	if not is_result:
		_draft_s = -1.0
	_unaccepted[id] = message
	_submit(id)
	return id


func _post_events(body: String) -> Dictionary:
	var address := "http" + url.left(url.rfind("/")).trim_prefix("ws")
	var headers := PackedStringArray(["Content-Type: application/json"])
	if not token.is_empty():
		headers.append("Authorization: Bearer " + token)
	var request := HTTPRequest.new()
	request.timeout = ANSWER_TIMEOUT_S
	add_child(request)
	var parsed: Variant = null
	var target := "%s/worlds/%s/events" % [address, world.uri_encode()]
	if request.request(target, headers, HTTPClient.METHOD_POST, body) == OK:
		var answered: Array = await request.request_completed
		var content: PackedByteArray = answered[3]
		parsed = JSON.parse_string(content.get_string_from_utf8())
	request.queue_free()
	if parsed is Dictionary and (parsed.has("events") or parsed.has("error")):
		return parsed
	return {"error": {"code": "unreachable", "message": "no answer", "retryable": true}}
