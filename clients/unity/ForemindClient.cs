using System;
using System.Collections.Generic;
using System.Diagnostics;

namespace Foremind
{
    /// <summary>
    /// A conversation with a companion. Call <see cref="Poll"/> in every frame of a game: it raises all
    /// events. A client belongs to one thread, Unity's main thread for instance.
    /// </summary>
    /// <remarks>
    /// A lost connection is resumed: what was missed is raised then, once and in order. Where that
    /// cannot be, <c>session.opened</c> says <c>resumed: false</c> and gives the last turns instead.
    /// Of several gateways one serves a session: the client goes where <c>session.redirect</c> says,
    /// and comes back where it cannot get there.
    /// </remarks>
    public sealed class ForemindClient
    {
        const double MergeS = 0.05; // what the protocol allows a client to hold keystrokes back

        readonly Stopwatch _clock = Stopwatch.StartNew();
        readonly ForemindOutbox _outbox = new ForemindOutbox();
        readonly ForemindLink _link;
        string _draft; // the newest that is not told yet
        double _draftAt = double.PositiveInfinity; // when it is told

        /// <exception cref="ArgumentException">Naming the option that is missing.</exception>
        public ForemindClient(ForemindOptions options)
        {
            if (options == null) throw new ArgumentNullException(nameof(options));
            options.Check();
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
        public void Type(string text)
        {
            _draft = text ?? throw new ArgumentNullException(nameof(text));
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
        /// <returns>The message's id.</returns>
        /// <exception cref="InvalidOperationException">16 messages wait for the server.</exception>
        /// <exception cref="ArgumentException">It fits no frame of 64 KiB.</exception>
        public string Send(string text, bool remember = true, Dictionary<string, object> settings = null)
        {
            if (text == null) throw new ArgumentNullException(nameof(text));
            return Keep(ForemindProtocol.MessageSend(ForemindOutbox.NewId(), text, How(remember, settings)));
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
        /// Tell what goes on in the session: what is not given stays, a flag of null goes. It holds for
        /// what is sent after it, and is told again after a lost connection until the server knows.
        /// </summary>
        /// <exception cref="ArgumentException">What the server does not know fits no frame.</exception>
        public void SetState(string task = null, IDictionary<string, object> flags = null)
        {
            _outbox.SetState(task, flags);
            _link.Write(_outbox.StateFrame);
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
            var frame = ForemindJson.Write(ForemindProtocol.DraftUpdate(_draft));
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
