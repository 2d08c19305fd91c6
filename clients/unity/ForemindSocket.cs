using System;
using System.Collections.Concurrent;
using System.IO;
using System.Net.WebSockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Foremind
{
    public enum ForemindSocketState
    {
        Connecting,
        Open,
        Closed,
    }

    /// <summary>
    /// One connection, which is being made from the start. The client calls it from
    /// <see cref="ForemindClient.Poll"/> and from its other methods, on one thread. In WebGL, where
    /// there is no ClientWebSocket, a game implements it by what reaches the browser's WebSocket.
    /// </summary>
    public interface IForemindSocket
    {
        /// <summary>Closed only once every message before that can be received.</summary>
        ForemindSocketState State { get; }

        /// <summary>Of a closed connection; 0 if it broke off, or was never made.</summary>
        int CloseCode { get; }

        string CloseReason { get; }

        /// <summary>Take the next message, if there is one.</summary>
        bool TryReceive(out string text);

        /// <summary>Send a text message, at once or later, but in order; called while it is open.</summary>
        void Send(string text);

        /// <summary>Send what waits, then close with 1000. Nothing is received any more.</summary>
        void Close();
    }

    /// <summary>A connection by the ClientWebSocket of .NET. Its own task reads and writes.</summary>
    public sealed class ForemindNetSocket : IForemindSocket
    {
        const int MaxMessageBytes = 1048576; // `session.opened` may hold thirty long turns
        const int MaxUnread = 256; // messages; then no more is read from the network
        const int MaxUnsent = 256; // messages; then the network is taken for dead
        const int CloseTimeoutMs = 2000;

        readonly ClientWebSocket _socket = new ClientWebSocket();
        readonly CancellationTokenSource _stop = new CancellationTokenSource();
        readonly ConcurrentQueue<string> _unread = new ConcurrentQueue<string>();
        readonly SemaphoreSlim _room = new SemaphoreSlim(MaxUnread);
        readonly ConcurrentQueue<string> _unsent = new ConcurrentQueue<string>();
        readonly SemaphoreSlim _work = new SemaphoreSlim(0); // released for each message, and to close
        volatile bool _closing;
        volatile int _state = (int)ForemindSocketState.Connecting;

        public ForemindNetSocket(Uri url)
        {
            Task.Run(() => RunAsync(url));
        }

        public ForemindSocketState State => (ForemindSocketState)_state;

        public int CloseCode { get; private set; }

        public string CloseReason { get; private set; } = "";

        public bool TryReceive(out string text)
        {
            if (!_unread.TryDequeue(out text)) return false;
            _room.Release();
            return true;
        }

        public void Send(string text)
        {
            if (_unsent.Count >= MaxUnsent)
            {
                _stop.Cancel();
                return;
            }
            _unsent.Enqueue(text);
            _work.Release();
        }

        public void Close()
        {
            _closing = true;
            _work.Release();
            _stop.CancelAfter(CloseTimeoutMs);
        }

        async Task RunAsync(Uri url)
        {
            var sending = Task.CompletedTask;
            try
            {
                await _socket.ConnectAsync(url, _stop.Token).ConfigureAwait(false);
                sending = SendAllAsync();
                _state = (int)ForemindSocketState.Open;
                await ReceiveAllAsync().ConfigureAwait(false);
                Close();
                await sending.ConfigureAwait(false);
            }
            catch (Exception error) // whatever it was, the connection is lost, and the client is told why
            {
                if (CloseCode == 0) CloseReason = error.Message;
            }
            _socket.Abort(); // ends the sending
            _state = (int)ForemindSocketState.Closed;
            await Task.WhenAny(sending).ConfigureAwait(false);
            _socket.Dispose();
        }

        async Task ReceiveAllAsync()
        {
            var chunk = new ArraySegment<byte>(new byte[16384]);
            var message = new MemoryStream();
            while (true)
            {
                var result = await _socket.ReceiveAsync(chunk, _stop.Token).ConfigureAwait(false);
                if (result.MessageType == WebSocketMessageType.Close) break;
                message.Write(chunk.Array, 0, result.Count);
                if (message.Length > MaxMessageBytes)
                {
                    throw new InvalidDataException($"a message of more than {MaxMessageBytes} bytes");
                }
                if (!result.EndOfMessage) continue;
                await _room.WaitAsync(_stop.Token).ConfigureAwait(false);
                _unread.Enqueue(Encoding.UTF8.GetString(message.GetBuffer(), 0, (int)message.Length));
                message.SetLength(0);
            }
            CloseCode = (int)(_socket.CloseStatus ?? 0);
            CloseReason = _socket.CloseStatusDescription ?? "";
        }

        async Task SendAllAsync()
        {
            string text; // apart, as Mono's compiler knows no `out var` in an async method
            while (true)
            {
                await _work.WaitAsync(_stop.Token).ConfigureAwait(false);
                if (_unsent.TryDequeue(out text))
                {
                    var bytes = new ArraySegment<byte>(Encoding.UTF8.GetBytes(text));
                    await _socket.SendAsync(bytes, WebSocketMessageType.Text, true, _stop.Token)
                        .ConfigureAwait(false);
                }
                else if (_closing)
                {
                    await _socket.CloseOutputAsync(WebSocketCloseStatus.NormalClosure, "", _stop.Token)
                        .ConfigureAwait(false);
                    return;
                }
            }
        }
    }
}
