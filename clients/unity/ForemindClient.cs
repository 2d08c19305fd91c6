using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Threading.Tasks;

namespace Foremind
{
    /// <summary>
    /// A conversation with a companion, or in a scene of a world. Call <see cref="Poll"/> in every frame of a game: it raises all
    /// events. A client belongs to one thread, Unity's main thread for instance.
    /// </summary>
    /// <remarks>
    /// A lost connection is resumed: what was missed is raised then, once and in order. Where that
    /// cannot be, <c>session.opened</c> says <c>resumed: false</c> and gives the last turns instead.
    /// Of several gateways one serves a session: the client goes where <c>session.redirect</c> says,
    /// and comes back where it cannot get there. A scene is joined again: <c>scene.state</c> then gives
    /// what happened last.
    /// </remarks>
    public sealed class ForemindClient
    {
        const double MergeS = 0.05; // what the protocol allows a client to hold keystrokes back

        readonly Stopwatch _clock = Stopwatch.StartNew();
        readonly ForemindOutbox _outbox = new ForemindOutbox();
        readonly ForemindLink _link;
        readonly ForemindOptions _options;
        Dictionary<string, object> _draft; // the newest that is not told yet
        double _draftAt = double.PositiveInfinity; // when it is told

        /// <exception cref="ArgumentException">Naming the option that is missing.</exception>
        public ForemindClient(ForemindOptions options)
        {
            if (options == null) throw new ArgumentNullException(nameof(options));
            options.Check();
            _options = options;
            _link = new ForemindLink(options, _outbox);
        }

        /// <summary>Raised by <see cref="Poll"/> for every event of the server.</summary>
        public event Action<ForemindEvent> Received;

        /// <summary>Raised by <see cref="Poll"/> when the connection changes.</summary>
        public event Action<ForemindStateChange> StateChanged;

        /// <summary>True while messages go straight to the server.</summary>
        public bool IsOpen => _link.IsOpen;

        double Now => _clock.Elapsed.TotalSeconds;

        /// <summary>Connect, and stay connected until <see cref="Close"/>.</summary>
        public void Open()
        {
            _link.Open(Now);
        }

        /// <summary>Leave for good. Messages that are not stored wait for a later <see cref="Open"/>.</summary>
        public void Close()
        {
            ForgetDraft();
            _link.Close();
        }

        /// <summary>
        /// Do what is due, and raise events: at most as many of the server's as have arrived. It does
        /// not block. What a handler throws comes out of it; the rest is raised by the next call.
        /// </summary>
        public void Poll()
        {
            RaiseAll();
            _link.Advance(Now);
            RaiseAll();
            for (var left = ForemindLink.MaxEventsPerPoll; left > 0 && _link.ReceiveOne(Now); left--) RaiseAll();
            RaiseAll();
            if (Now >= _draftAt) TellDraft();
        }

        /// <summary>
        /// Tell the whole draft as it now stands; call it whenever the text changes. One that fits no
        /// frame, or was typed while there is no connection, is not told.
        /// </summary>
        /// <param name="text">What the player has typed.</param>
        /// <param name="to">As of <see cref="Send"/>, as far as it is known.</param>
        /// <param name="volume">As of <see cref="Send"/>, as far as it is known.</param>
        public void Type(string text, IEnumerable<string> to = null, string volume = null)
        {
            if (text == null) throw new ArgumentNullException(nameof(text));
            _draft = ForemindProtocol.DraftUpdate(text, Speech(to, volume));
            if (double.IsPositiveInfinity(_draftAt)) _draftAt = Now + MergeS;
        }

        /// <summary>Tell that the player discarded the draft.</summary>
        public void Clear()
        {
            ForgetDraft();
            _link.Write(ForemindProtocol.DraftClear());
        }

        /// <summary>
        /// Send a message, and again after a lost connection until the server has stored it; its id
        /// makes sure that it is stored and answered once.
        /// </summary>
        /// <param name="text">What the player says.</param>
        /// <param name="remember">
        /// False: no memory is made of it, and it is erased with its session.
        /// </param>
        /// <param name="settings">Settings of this turn alone, by name.</param>
        /// <param name="to">In a scene: whom it is said to, by id or slug; by default all.</param>
        /// <param name="volume">In a scene: "whisper", "say" or "shout".</param>
        /// <returns>The message's id.</returns>
        /// <exception cref="InvalidOperationException">16 messages wait for the server.</exception>
        /// <exception cref="ArgumentException">It fits no frame of 64 KiB.</exception>
        public string Send(
            string text, bool remember = true, Dictionary<string, object> settings = null,
            IEnumerable<string> to = null, string volume = null)
        {
            if (text == null) throw new ArgumentNullException(nameof(text));
            var how = How(remember, settings);
            foreach (var member in Speech(to, volume)) how.Add(member.Key, member.Value);
            return Keep(ForemindProtocol.MessageSend(ForemindOutbox.NewId(), text, how));
        }

        /// <summary>
        /// Put another text in the place of the last message, which is forgotten with its replies.
        /// Otherwise as <see cref="Send"/>.
        /// </summary>
        /// <returns>The id of the message that takes its place.</returns>
        public string Edit(
            string messageId, string text, bool remember = true, Dictionary<string, object> settings = null)
        {
            if (messageId == null) throw new ArgumentNullException(nameof(messageId));
            if (text == null) throw new ArgumentNullException(nameof(text));
            var how = How(remember, settings);
            return Keep(ForemindProtocol.MessageEdit(ForemindOutbox.NewId(), messageId, text, how));
        }

        /// <summary>
        /// Ask for another reply to the last message; those before can be chosen again. The request is
        /// kept and sent again as a message is.
        /// </summary>
        /// <returns>The id of the request.</returns>
        public string Regenerate(string messageId, Dictionary<string, object> settings = null)
        {
            if (messageId == null) throw new ArgumentNullException(nameof(messageId));
            var how = How(true, settings);
            return Keep(ForemindProtocol.ResponseRegenerate(ForemindOutbox.NewId(), messageId, how));
        }

        /// <summary>
        /// Choose which reply to the last message stands, by its index from 0; <c>response.chosen</c>
        /// says that it does.
        /// </summary>
        public void Choose(string messageId, int index)
        {
            _link.Write(ForemindProtocol.ResponseChoose(messageId, index));
        }

        /// <summary>Stop a reply; its id is in <c>response.created</c>.</summary>
        public void Cancel(string responseId)
        {
            _link.Write(ForemindProtocol.ResponseCancel(responseId));
        }

        /// <summary>
        /// Tell a mind what came of an action, as the game server of its world; the first result counts. It
        /// is kept and sent again as a message is.
        /// </summary>
        /// <param name="id">As in <c>action.requested</c>.</param>
        /// <param name="result">In words, or what <see cref="ForemindJson"/> writes.</param>
        /// <returns>What <c>action.accepted</c>, or an error, has as <c>event_id</c>.</returns>
        /// <exception cref="InvalidOperationException">16 messages wait for the server.</exception>
        /// <exception cref="ArgumentException">It fits no frame of 64 KiB.</exception>
        public string AnswerAction(string id, object result)
        {
            if (id == null) throw new ArgumentNullException(nameof(id));
            var message = ForemindProtocol.ActionResult(id, result);
            _link.Submit(_outbox.Keep(message), Now);
            return (string)message["event_id"];
        }

        /// <summary>
        /// Report what happens in the world, as its game server; also without a connection. A failure that
        /// may pass is tried again: no event is stored twice. WebGL has no requests for it.
        /// </summary>
        /// <returns>The <c>id</c> of each event, and whether it is a <c>duplicate</c>.</returns>
        /// <exception cref="ForemindException">The server did not store them, or gave no answer.</exception>
        public Task<List<object>> Report(IEnumerable<Dictionary<string, object>> events)
        {
            if (events == null) throw new ArgumentNullException(nameof(events));
            return ForemindReport.Send(_options, events);
        }

        /// <summary>
        /// Tell what goes on in the session: what is not given stays, a flag of null goes. It holds for
        /// what is sent after it, and is told again after a lost connection until the server knows.
        /// </summary>
        /// <exception cref="ArgumentException">What the server does not know fits no frame.</exception>
        public void SetState(string task = null, IDictionary<string, object> flags = null)
        {
            _outbox.SetState(task, flags);
            _link.Write(_outbox.StateFrame);
        }

        static Dictionary<string, object> Speech(IEnumerable<string> to, string volume)
        {
            var speech = new Dictionary<string, object>();
            if (to != null) speech["to"] = new List<object>(to);
            if (volume != null) speech["volume"] = volume;
            return speech;
        }

        static Dictionary<string, object> How(bool remember, Dictionary<string, object> settings)
        {
            var how = new Dictionary<string, object>();
            if (!remember) how["remember"] = false;
            if (settings != null) how["settings"] = settings;
            return how;
        }

        string Keep(Dictionary<string, object> message)
        {
            var frame = _outbox.Keep(message);
            ForgetDraft();
            _link.Submit(frame, Now);
            return (string)message["id"];
        }

        void TellDraft()
        {
            var frame = ForemindJson.Write(_draft);
            ForgetDraft();
            if (ForemindOutbox.Fits(frame)) _link.Write(frame);
        }

        void ForgetDraft()
        {
            _draft = null;
            _draftAt = double.PositiveInfinity;
        }

        void RaiseAll()
        {
            while (_link.Untold.Count > 0)
            {
                var next = _link.Untold.Dequeue();
                if (next is ForemindEvent received) Received?.Invoke(received);
                else StateChanged?.Invoke((ForemindStateChange)next);
            }
        }
    }
}
