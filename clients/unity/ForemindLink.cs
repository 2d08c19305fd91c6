using System;
using System.Collections.Generic;

namespace Foremind
{
    /// <summary>
    /// Keeps a session connected. What it has to tell waits in <see cref="Untold"/>. Its methods do not
    /// block; times are seconds of the client's clock.
    /// </summary>
    internal sealed class ForemindLink
    {
        internal const int MaxEventsPerPoll = 256; // so that a frame of the game ends
        const double LastRetryS = 15;
        const double ToldTimeoutS = 2; // to reach a gateway that the server named
        const int MaxRefusals = 3; // fresh tokens that may be refused in a row
        const int NotAuthenticated = 4401;
        const int Elsewhere = 4421; // another gateway serves the session
        const double Never = double.PositiveInfinity;

        static readonly HashSet<int> FinalCodes = new HashSet<int> { 4400, 4403, 4409 };

        readonly ForemindOptions _options;
        readonly ForemindOutbox _outbox;
        readonly Random _random = new Random();
        readonly Uri _url;
        bool _wanted; // between Open and Close
        IForemindSocket _socket;
        bool _greeted; // `session.open` was sent on this connection
        string _token; // the one in use
        ForemindTokenRequest _connecting; // the token of the next connection
        ForemindTokenRequest _renewing; // the next token of this connection
        Uri _owner; // the gateway that serves the session, as the server told
        Uri _unanswered; // what was told since a session was opened, and did not answer
        bool _moved; // this connection was told where its open session goes on
        bool _redirected; // told since a session was opened: the next gateway is to serve it
        string _sessionId;
        long _seq;
        int _failures; // in a row
        double _openedAt;
        int _refusals; // of fresh tokens, since a session was opened
        double _retryAt = Never;
        double _answerBy = Never;
        double _reachBy = Never;
        double _renewAt = Never;

        internal ForemindLink(ForemindOptions options, ForemindOutbox outbox)
        {
            _options = options;
            _outbox = outbox;
            _url = ForemindOptions.SocketUrl(options.Url);
        }

        internal bool IsOpen { get; private set; }

        /// <summary>
        /// What to raise, in order. It grows by a few for each call, and is emptied after each.
        /// </summary>
        internal Queue<object> Untold { get; } = new Queue<object>();

        internal void Open(double now)
        {
            if (_wanted && _retryAt == Never) return;
            _wanted = true;
            Dial(now);
        }

        internal void Close()
        {
            if (!_wanted) return;
            _wanted = false;
            _failures = 0;
            HangUp();
            Tell(ForemindState.Closed, 1000, "");
        }

        internal void Write(Dictionary<string, object> message)
        {
            Write(ForemindJson.Write(message));
        }

        internal void Write(string frame)
        {
            if (IsOpen) _socket.Send(frame);
        }

        /// <summary>Write a message for whose answer the client waits.</summary>
        internal void Submit(string frame, double now)
        {
            if (!IsOpen) return;
            Write(frame);
            ExpectAnswer(now);
        }

        /// <summary>Do what is due.</summary>
        internal void Advance(double now)
        {
            if (now >= _retryAt) Dial(now);
            if (_connecting != null) Connect(now);
            if (_socket != null && !_greeted && _socket.State == ForemindSocketState.Open) Greet();
            if (_socket != null && now >= _reachBy) Lose(0, "no answer", now);
            if (_socket != null && now >= _answerBy) Lose(0, "the server does not answer", now);
            Renew(now);
            foreach (var frame in _outbox.TakeDue(now)) Submit(frame, now);
        }

        /// <summary>Take one message of the server, or notice that the connection is closed.</summary>
        /// <returns>Whether there may be more.</returns>
        internal bool ReceiveOne(double now)
        {
            if (_socket == null) return false;
            var state = _socket.State; // first: a message may arrive after it was looked for
            if (_socket.TryReceive(out var text))
            {
                Read(text, now);
                return true;
            }
            if (state == ForemindSocketState.Closed) Lose(_socket.CloseCode, _socket.CloseReason, now);
            return false;
        }

        void Dial(double now)
        {
            HangUp();
            Tell(ForemindState.Connecting, 0, "");
            if (_options.TokenSource != null)
            {
                _connecting = new ForemindTokenRequest(_options.TokenSource, now);
                return; // first: the server waits only so long for it
            }
            _token = _options.Token;
            Begin(now);
        }

        void Connect(double now)
        {
            if (!_connecting.IsOver(now, out var token, out var failure)) return;
            _connecting = null;
            if (failure != null)
            {
                Lose(0, $"no token: {failure}", now);
                return;
            }
            _token = token;
            Begin(now);
        }

        void Begin(double now)
        {
            try
            {
                _socket = _options.Connect(_owner ?? _url);
            }
            catch (Exception error) // of the game's own socket, or a platform without any
            {
                Lose(0, error.Message, now);
                return;
            }
            ExpectAnswer(now);
            if (_owner != null) _reachBy = now + ToldTimeoutS;
        }

        void Greet()
        {
            _greeted = true;
            _reachBy = Never;
            var details = new Dictionary<string, object> { ["follow"] = true, ["redirected"] = _redirected };
            if (!_options.Contexts) details["contexts"] = false;
            if (_options.Companion != null) details["companion"] = _options.Companion;
            if (_options.World != null) details["world"] = _options.World;
            if (_options.Scene != null) details["scene"] = _options.Scene;
            if (_options.Sentences) details["sentences"] = true;
            if (_options.TimeZone != null) details["time_zone"] = _options.TimeZone;
            if (_token != null) details["token"] = _token;
            else details["user"] = User();
            if (_sessionId != null && _options.World == null) // a scene is joined again
            {
                details["resume"] = new Dictionary<string, object> { ["session_id"] = _sessionId, ["seq"] = _seq };
            }
            _socket.Send(ForemindJson.Write(ForemindProtocol.SessionOpen(details)));
        }

        Dictionary<string, object> User()
        {
            return new Dictionary<string, object>
            {
                ["id"] = _options.UserId,
                ["name"] = _options.UserName ?? _options.UserId,
            };
        }

        void Read(string text, double now)
        {
            ForemindEvent received;
            try
            {
                received = new ForemindEvent(ForemindJson.Read(text) as Dictionary<string, object>
                    ?? throw new FormatException("JSON: expected an object"));
            }
            catch (FormatException error)
            {
                Lose(0, error.Message, now);
                return;
            }
            _answerBy = Never;
            if (received.Type == ForemindProtocol.SessionOpened) Opened(received, now);
            if (IsOpen) _seq = received.Seq;
            Untold.Enqueue(received);
            Follow(received, now);
            if (_socket != null && (!IsOpen || !_outbox.IsEmpty)) ExpectAnswer(now);
        }

        void Opened(ForemindEvent opened, double now)
        {
            _sessionId = opened.Text("session_id");
            IsOpen = true;
            _openedAt = now;
            _refusals = 0;
            _redirected = false;
            _moved = false;
            _unanswered = null;
            RenewLater(now);
            Tell(ForemindState.Open, 0, "");
            if (_outbox.StateFrame != null) Write(_outbox.StateFrame);
            foreach (var frame in _outbox.Frames) Submit(frame, now);
        }

        void Follow(ForemindEvent received, double now)
        {
            switch (received.Type)
            {
                case ForemindProtocol.MessageAccepted:
                    _outbox.Accept(received.Text("id"));
                    break;
                case ForemindProtocol.ActionAccepted:
                    _outbox.Accept(received.Text("event_id"));
                    break;
                case ForemindProtocol.SessionUpdated:
                    _outbox.Know(received.Text("event_id"));
                    break;
                case ForemindProtocol.SessionRedirect:
                    Redirect(_options.RedirectUrl(received.Text("url")), now);
                    break;
                case ForemindProtocol.Error:
                    Err(new ForemindEvent(received.Object("error") ?? new Dictionary<string, object>()), now);
                    break;
            }
        }

        void Err(ForemindEvent error, double now)
        {
            var retryable = error.Flag("retryable");
            _outbox.Refuse(error.Text("event_id"), retryable, now);
            // What is wrong with a token is told by the close code that follows.
            if (IsOpen || error.Text("code") == "not_authenticated") return;
            if (!retryable && _owner == null) _wanted = false;
            Lose(0, error.Text("message"), now);
        }

        /// <summary>
        /// The session is served elsewhere: an open one once its connection is closed, else at once.
        /// </summary>
        void Redirect(Uri url, double now)
        {
            if (IsOpen)
            {
                _owner = url;
                _moved = true;
            }
            else if (_redirected)
            {
                Lose(0, "redirected twice", now);
            }
            else
            {
                _redirected = true;
                _owner = url == _unanswered ? null : url;
                Dial(now);
            }
        }

        void Lose(int code, string reason, double now)
        {
            var unanswered = _socket != null && !IsOpen;
            // A server that closes whatever it opens is asked less and less often.
            if (IsOpen && now - _openedAt > LongestRetryS(_failures - 1)) _failures = 0;
            if (IsOpen && code == Elsewhere && !_moved) _owner = null; // the first URL tells where
            HangUp();
            if (_owner != null && unanswered && _wanted)
            {
                _unanswered = _owner;
                _owner = null;
                Dial(now); // where it was told first
                return;
            }
            if (!_wanted || IsFinal(code))
            {
                _wanted = false;
                Tell(ForemindState.Closed, code, reason);
                return;
            }
            // Full jitter: clients that lost the same server do not come back at the same moment.
            var retryS = _random.NextDouble() * LongestRetryS(_failures++);
            _retryAt = now + retryS;
            Untold.Enqueue(new ForemindStateChange(ForemindState.Waiting, code, reason, retryS));
        }

        double LongestRetryS(int failures)
        {
            return Math.Min(LastRetryS, _options.FirstRetryS * Math.Pow(2, failures));
        }

        /// <summary>Whether it would be the same again: a fresh token may do what an old one did not.</summary>
        bool IsFinal(int code)
        {
            if (code != NotAuthenticated) return FinalCodes.Contains(code);
            return _options.TokenSource == null || ++_refusals >= MaxRefusals;
        }

        void HangUp()
        {
            IsOpen = false;
            _greeted = false;
            _connecting = null;
            _renewing = null;
            _retryAt = _answerBy = _reachBy = _renewAt = Never;
            _socket?.Close();
            _socket = null;
        }

        /// <summary>Connect again unless the server says something in time: it may be gone without a word.</summary>
        void ExpectAnswer(double now)
        {
            if (_answerBy == Never) _answerBy = now + _options.AnswerTimeoutS;
        }

        void RenewLater(double now)
        {
            if (_options.TokenSource == null || _options.World != null) return;
            var sinceEpoch = DateTimeOffset.UtcNow.ToUnixTimeMilliseconds() / 1000.0;
            _renewAt = now + ForemindToken.RenewalDelay(_token, sinceEpoch);
        }

        /// <summary>Give the session a fresh token before the one that it has expires.</summary>
        void Renew(double now)
        {
            if (now >= _renewAt)
            {
                _renewAt = Never;
                _renewing = new ForemindTokenRequest(_options.TokenSource, now);
            }
            if (_renewing == null || !_renewing.IsOver(now, out var token, out var failure)) return;
            _renewing = null;
            if (failure != null) return; // the next connection gets one of its own
            _token = token;
            Write(ForemindProtocol.SessionUpdate(new Dictionary<string, object> { ["token"] = token }));
            RenewLater(now);
        }

        void Tell(ForemindState state, int code, string reason)
        {
            Untold.Enqueue(new ForemindStateChange(state, code, reason, 0));
        }
    }
}
