using System;
using System.Threading.Tasks;

namespace Foremind
{
    /// <summary>With whom to talk, who talks, and how to connect.</summary>
    public sealed class ForemindOptions
    {
        /// <summary>The socket of the server.</summary>
        public string Url { get; set; } = "ws://127.0.0.1:8770/v1/ws";

        /// <summary>The slug of the companion.</summary>
        public string Companion { get; set; }

        /// <summary>In place of a companion: the world, and the scene of it, that is joined.</summary>
        public string World { get; set; }

        /// <summary>See <see cref="World"/>.</summary>
        public string Scene { get; set; }

        /// <summary>Who plays, where there is no token and the server runs open.</summary>
        public string UserId { get; set; }

        /// <summary>What the companion calls the player; by default the id.</summary>
        public string UserName { get; set; }

        /// <summary>A signed token, where the server does not run open.</summary>
        public string Token { get; set; }

        /// <summary>
        /// What gets a signed token, in place of one: it is called for every connection, and again
        /// before a token expires. Where it fails, it is called again like a connection that cannot be
        /// made. It is called on the thread of <see cref="ForemindClient.Poll"/>, and for every request of
        /// <see cref="ForemindClient.Report"/> on the thread of that.
        /// </summary>
        public Func<Task<string>> TokenSource { get; set; }

        /// <summary>
        /// The player's IANA time zone, such as Europe/Lisbon; by default that of the machine, where
        /// its name is one (on Windows it is not).
        /// </summary>
        public string TimeZone { get; set; } =
            TimeZoneInfo.Local.Id.IndexOf('/') > 0 ? TimeZoneInfo.Local.Id : null;

        /// <summary>
        /// What begins a connection to a URL; by default ClientWebSocket. WebGL needs another.
        /// </summary>
        public Func<Uri, IForemindSocket> Connect { get; set; } = url => new ForemindNetSocket(url);

        /// <summary>
        /// Longest wait before the first attempt to reconnect, in seconds; it doubles up to 15.
        /// </summary>
        public double FirstRetryS { get; set; } = 0.25;

        /// <summary>
        /// How long a server may take to open a session or to store a message, in seconds; one that is
        /// silent for longer is connected to again.
        /// </summary>
        public double AnswerTimeoutS { get; set; } = 30;

        /// <summary>
        /// Whether context.ready is received: what was prepared for a draft, for a game that shows it.
        /// </summary>
        public bool Contexts { get; set; }

        /// <summary>Whether response.sentence is received: each sentence of a reply, for a voice.</summary>
        public bool Sentences { get; set; }

        /// <exception cref="ArgumentException">Naming the option that is missing.</exception>
        internal void Check()
        {
            var joins = !string.IsNullOrEmpty(World) || !string.IsNullOrEmpty(Scene);
            if (string.IsNullOrEmpty(Companion) != joins)
            {
                throw new ArgumentException("Companion: expected the slug of a companion, or World and Scene");
            }
            if (joins && string.IsNullOrEmpty(World)) throw new ArgumentException("World: expected its name");
            if (joins && string.IsNullOrEmpty(Scene)) throw new ArgumentException("Scene: expected its name");
            if (SocketUrl(Url) == null) throw new ArgumentException("Url: expected ws://HOST:PORT/v1/ws");
            if (UserId == null && Token == null && TokenSource == null)
            {
                throw new ArgumentException("UserId: expected the player's id, or a Token or TokenSource");
            }
            if (Connect == null) throw new ArgumentException("Connect: expected what connects to a URL");
        }

        /// <summary>Return the URL of a socket; null if it is not one.</summary>
        internal static Uri SocketUrl(string text)
        {
            if (!Uri.TryCreate(text, UriKind.Absolute, out var url)) return null;
            return url.Scheme == "ws" || url.Scheme == "wss" ? url : null;
        }

        /// <summary>Return the URL to which a server sends the client; null if it should not follow.</summary>
        internal Uri RedirectUrl(string text)
        {
            var url = SocketUrl(text);
            return url?.Scheme == "ws" && SocketUrl(Url).Scheme == "wss" ? null : url;
        }
    }
}
