using System;
using System.Collections.Generic;
using System.Linq;
using System.Security.Cryptography;
using System.Text;

namespace Foremind
{
    /// <summary>
    /// What the server does not have yet: messages until it has stored them, and the state of the
    /// session until it knows. Times are seconds of the client's clock.
    /// </summary>
    internal sealed class ForemindOutbox
    {
        const int MaxUnaccepted = 16;
        const int MaxFrameBytes = 65536; // the server closes connections that exceed it
        const double ResubmitS = 1; // after a retryable error

        static readonly List<string> Nothing = new List<string>();

        readonly List<Unaccepted> _unaccepted = new List<Unaccepted>(); // in order
        string _stateId; // of the newest change; null once the server knows it
        Dictionary<string, object> _state;

        internal bool IsEmpty => _unaccepted.Count == 0;

        /// <summary>The frames of all messages, in order.</summary>
        internal List<string> Frames => _unaccepted.Select(message => message.Frame).ToList();

        /// <summary>The frame that tells what goes on; null if the server knows.</summary>
        internal string StateFrame => _stateId == null ? null : UpdateFrame(_stateId, _state);

        /// <summary>A random id.</summary>
        internal static string NewId()
        {
            var bytes = new byte[16];
            using (var random = RandomNumberGenerator.Create()) random.GetBytes(bytes);
            return string.Concat(bytes.Select(value => value.ToString("x2")));
        }

        /// <summary>Whether the server takes a frame of this size.</summary>
        internal static bool Fits(string frame)
        {
            return Encoding.UTF8.GetByteCount(frame) <= MaxFrameBytes;
        }

        /// <summary>Keep a message until it is accepted; return its frame.</summary>
        internal string Keep(Dictionary<string, object> message)
        {
            if (_unaccepted.Count >= MaxUnaccepted)
            {
                throw new InvalidOperationException($"at most {MaxUnaccepted} messages may wait for the server");
            }
            var result = (string)message["type"] == "action.result";
            var id = result ? NewId() : (string)message["id"];
            message["event_id"] = id; // so that an error can be told to be about it
            var frame = ForemindJson.Write(message);
            if (!Fits(frame))
            {
                var field = result ? "result" : "text";
                throw new ArgumentException($"{field}: expected a message of at most {MaxFrameBytes} bytes");
            }
            var again = (string)message["type"] == "response.regenerate" ? (string)message["message_id"] : null;
            _unaccepted.Add(new Unaccepted { Id = id, Regenerates = again, Frame = frame });
            return frame;
        }

        /// <summary>Forget a message that the server has stored, or is answering again.</summary>
        internal void Accept(string id)
        {
            if (id != null) _unaccepted.RemoveAll(message => message.Id == id || message.Regenerates == id);
        }

        /// <summary>Note an error about a message or about the state.</summary>
        internal void Refuse(string id, bool retryable, double now)
        {
            if (id == null) return;
            if (!retryable)
            {
                Know(id);
                _unaccepted.RemoveAll(message => message.Id == id);
            }
            foreach (var message in _unaccepted.Where(message => message.Id == id)) message.AgainAt = now + ResubmitS;
        }

        /// <summary>Take the frames of refused messages whose time has come.</summary>
        internal List<string> TakeDue(double now)
        {
            if (IsEmpty) return Nothing; // without garbage in every frame of a game
            var due = _unaccepted.Where(message => message.AgainAt <= now).ToList();
            foreach (var message in due) message.AgainAt = double.PositiveInfinity;
            return due.Select(message => message.Frame).ToList();
        }

        /// <summary>Merge a change into what the server does not know yet.</summary>
        internal void SetState(string task, IDictionary<string, object> flags)
        {
            var patch = new Dictionary<string, object>(_stateId == null ? new Dictionary<string, object>() : _state);
            var merged = patch.TryGetValue("flags", out var before)
                ? new Dictionary<string, object>((Dictionary<string, object>)before)
                : new Dictionary<string, object>();
            foreach (var flag in flags ?? new Dictionary<string, object>()) merged[flag.Key] = flag.Value;
            patch["flags"] = merged;
            if (task != null) patch["task"] = task;
            var id = NewId();
            if (!Fits(UpdateFrame(id, patch)))
            {
                throw new ArgumentException($"state: expected at most {MaxFrameBytes} bytes");
            }
            _stateId = id;
            _state = patch;
        }

        /// <summary>Note that the server knows a state, or will never take it.</summary>
        internal void Know(string id)
        {
            if (id != null && id == _stateId) _stateId = null;
        }

        static string UpdateFrame(string id, Dictionary<string, object> state)
        {
            return ForemindJson.Write(ForemindProtocol.SessionUpdate(
                new Dictionary<string, object> { ["state"] = state, ["event_id"] = id }));
        }

        sealed class Unaccepted
        {
            internal string Id;
            internal string Regenerates; // the message to which it asks for another reply
            internal string Frame;
            internal double AgainAt = double.PositiveInfinity; // after a retryable error
        }
    }
}
