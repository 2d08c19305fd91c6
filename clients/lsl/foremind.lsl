// Foremind for Second Life and OpenSim: an object that answers in chat, by turns over HTTP.
//
// Put it into an object and set the first four lines. Hand the object on with the script no-modify:
// whoever can read the script can read the token.

string URL = "https://mind.example"; // of the server
string TOKEN = ""; // of scope host and chat; none where the server runs open
string COMPANION = "wren";
integer CHANNEL = 0; // where avatars are heard

string BUSY = "One moment, please."; // told to an avatar when too many wait
// Of an answer: 2,048 bytes unless it is said, at most 16,384. In memory a text takes two bytes a
// character, and body and reply are there at once: more may not fit the 64 KB of a script.
integer BODY_BYTES = 8192;
integer MAX_WAITING = 4; // messages of at most 1,024 bytes
integer MAX_ATTEMPTS = 6;
float FIRST_RETRY_S = 5.0; // doubled with each failure
float LAST_RETRY_S = 60.0;
float THROTTLED_S = 40.0; // the region takes 25 requests of an object in 20 s
integer SAID_BYTES = 1023; // what is longer is cut off by llSay

list gWaiting; // of each message: id, avatar, name, text; the first one is being answered
key gRequest; // the one whose answer is awaited
integer gAttempts; // for the first message

// A text as JSON. llList2Json would take what stands in braces, brackets or quotes for JSON.
string quoted(string text) {
    text = llDumpList2String(llParseStringKeepNulls(text, ["\\"], []), "\\\\");
    text = llDumpList2String(llParseStringKeepNulls(text, ["\""], []), "\\\"");
    text = llDumpList2String(llParseStringKeepNulls(text, ["\n"], []), "\\n");
    return "\"" + text + "\"";
}

send() {
    string body = "{\"id\":" + quoted(llList2String(gWaiting, 0))
        + ",\"companion\":" + quoted(COMPANION)
        + ",\"user\":" + quoted(llList2String(gWaiting, 1))
        + ",\"name\":" + quoted(llList2String(gWaiting, 2))
        + ",\"text\":" + quoted(llList2String(gWaiting, 3)) + "}";
    list options = [HTTP_METHOD, "POST", HTTP_MIMETYPE, "application/json",
        HTTP_BODY_MAXLENGTH, BODY_BYTES];
    if (TOKEN != "") {
        options += [HTTP_CUSTOM_HEADER, "Authorization", "Bearer " + TOKEN];
    }
    ++gAttempts;
    gRequest = llHTTPRequest(URL + "/v1/turns", options, body);
    if (gRequest == NULL_KEY) {
        later(THROTTLED_S, "throttled");
    }
}

// Sends the first message again, with the same id, after a while; or gives it up.
later(float seconds, string code) {
    if (gAttempts < MAX_ATTEMPTS) {
        llSetTimerEvent(seconds);
    } else {
        giveUp(code);
    }
}

giveUp(string code) {
    llOwnerSay("Foremind: a message was not answered: " + code);
    next();
}

next() {
    gWaiting = llDeleteSubList(gWaiting, 0, 3);
    gAttempts = 0;
    if (gWaiting != []) {
        send();
    }
}

float pauseAfterFailure() {
    float seconds = FIRST_RETRY_S * llPow(2.0, gAttempts - 1);
    if (seconds > LAST_RETRY_S) {
        return LAST_RETRY_S;
    }
    return seconds;
}

// Whether the same request may succeed later. 499 is the region's: no answer, or none in time.
integer passes(integer status, string told) {
    if (told == JSON_INVALID) {
        return status >= 499;
    }
    return told == JSON_TRUE;
}

// The reply in an answer; as far as it came, if the answer was longer than BODY_BYTES.
string replyIn(string body) {
    string text = llJsonGetValue(body, ["replies", 0, "text"]);
    if (text != JSON_INVALID) {
        return text;
    }
    integer begin = llSubStringIndex(body, "\"text\":\"");
    if (begin == -1) {
        return "";
    }
    body = llDeleteSubString(body, 0, begin + 7);
    integer end = llSubStringIndex(body, "\",\"status\":");
    if (end != -1) {
        return llJsonGetValue("{\"text\":\"" + llDeleteSubString(body, end, -1) + "\"}", ["text"]);
    }
    integer cut;
    for (cut = 1; cut <= 6; ++cut) { // it may end within an escape, of up to six characters
        text = llJsonGetValue("{\"text\":\"" + llGetSubString(body, 0, -cut) + "\"}", ["text"]);
        if (text != JSON_INVALID) {
            return text + " …";
        }
    }
    return "";
}

// At most two too many.
integer bytesOf(string text) {
    return llStringLength(llStringToBase64(text)) * 3 / 4;
}

// The most characters at the beginning of a text that llSay can say, if possible whole words.
integer sayable(string text) {
    integer count = SAID_BYTES;
    while (bytesOf(llGetSubString(text, 0, count - 1)) > SAID_BYTES) {
        count = count * 3 / 4;
    }
    if (llStringLength(text) <= count) {
        return count;
    }
    integer words = count;
    while (words > count / 2) {
        if (llGetSubString(text, words - 1, words - 1) == " ") {
            return words;
        }
        --words;
    }
    return count;
}

say(string text) {
    while (text != "") {
        integer count = sayable(text);
        llSay(CHANNEL, llGetSubString(text, 0, count - 1));
        if (llStringLength(text) <= count) {
            return;
        }
        text = llDeleteSubString(text, 0, count - 1);
    }
}

default {
    state_entry() {
        llListen(CHANNEL, "", NULL_KEY, "");
    }

    on_rez(integer start) {
        llResetScript();
    }

    listen(integer channel, string name, key id, string message) {
        if (llGetOwnerKey(id) != id) {
            return; // an object: two of them could talk with each other for ever
        }
        if (llGetListLength(gWaiting) >= MAX_WAITING * 4) {
            llRegionSayTo(id, 0, BUSY);
            return;
        }
        gWaiting += [(string)llGenerateKey(), (string)id, name, message];
        if (llGetListLength(gWaiting) == 4) {
            send();
        }
    }

    http_response(key request, integer status, list metadata, string body) {
        if (request != gRequest) {
            return;
        }
        if (status == 200) {
            say(replyIn(body));
            next();
            return;
        }
        string code = llJsonGetValue(body, ["error", "code"]);
        if (code == JSON_INVALID) {
            code = (string)status;
        }
        integer tomorrow = code == "token_limit";
        if (!tomorrow && passes(status, llJsonGetValue(body, ["error", "retryable"]))) {
            later(pauseAfterFailure(), code);
        } else {
            giveUp(code);
        }
    }

    timer() {
        llSetTimerEvent(0.0);
        send();
    }
}
