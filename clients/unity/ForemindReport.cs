using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net;
using System.Text;
using System.Threading.Tasks;

namespace Foremind
{
    /// <summary>The server did not do what it was asked, or gave no answer.</summary>
    public sealed class ForemindException : Exception
    {
        internal ForemindException(ForemindEvent error)
            : base(error.Text("message"))
        {
            Code = error.Text("code");
            Param = error.Text("param");
            Retryable = error.Flag("retryable");
            RetryAfterS = error.Number("retry_after_s");
        }

        internal ForemindException(string message)
            : base(message)
        {
            Code = "unreachable";
            Retryable = true;
        }

        /// <summary>Of the server; "unreachable" without an answer of it.</summary>
        public string Code { get; }

        /// <summary>The field at fault; null if there is none.</summary>
        public string Param { get; }

        /// <summary>Whether the same may succeed later.</summary>
        public bool Retryable { get; }

        /// <summary>In so many seconds; 0 if that is not known.</summary>
        public double RetryAfterS { get; }
    }

    internal static class ForemindReport
    {
        const int MaxReports = 8; // requests for one report
        const double LastRetryS = 15;
        const int TimeoutMs = 30000; // for an answer

        static readonly Random Jitter = new Random();

        internal static async Task<List<object>> Send(
            ForemindOptions options, IEnumerable<Dictionary<string, object>> events)
        {
            var body = ForemindJson.Write(new Dictionary<string, object>
            {
                ["events"] = events.Cast<object>().ToList(),
            });
            for (var failures = 1; ; failures++)
            {
                double waitS;
                try
                {
                    return await Post(options, body);
                }
                catch (ForemindException error) when (error.Retryable && failures < MaxReports)
                {
                    waitS = error.RetryAfterS;
                }
                var longest = Math.Min(LastRetryS, options.FirstRetryS * Math.Pow(2, failures - 1));
                lock (Jitter) waitS += Jitter.NextDouble() * longest;
                await Task.Delay(TimeSpan.FromSeconds(waitS));
            }
        }

        static async Task<List<object>> Post(ForemindOptions options, string body)
        {
            try
            {
                var token = options.TokenSource == null ? options.Token : await options.TokenSource();
                return await Task.Run(() => Answer(Request(options, token), Encoding.UTF8.GetBytes(body)));
            }
            catch (Exception error) when (!(error is ForemindException)) // of the network, a proxy or the game
            {
                throw new ForemindException($"no answer: {error.Message}");
            }
        }

        static HttpWebRequest Request(ForemindOptions options, string token)
        {
            var request = WebRequest.CreateHttp(EventsUrl(options));
            request.Method = "POST";
            request.ContentType = "application/json";
            request.Timeout = request.ReadWriteTimeout = TimeoutMs;
            if (token != null) request.Headers["Authorization"] = "Bearer " + token;
            return request;
        }

        static List<object> Answer(HttpWebRequest request, byte[] body)
        {
            try
            {
                using (var sent = request.GetRequestStream()) sent.Write(body, 0, body.Length);
                using (var answer = request.GetResponse()) return Fields(answer).List("events") ?? throw new FormatException();
            }
            catch (WebException error) when (error.Response != null)
            {
                throw new ForemindException(new ForemindEvent(Fields(error.Response).Object("error") ?? throw new FormatException()));
            }
        }

        static ForemindEvent Fields(WebResponse answer)
        {
            using (var reader = new StreamReader(answer.GetResponseStream(), Encoding.UTF8))
            {
                var fields = ForemindJson.Read(reader.ReadToEnd()) as Dictionary<string, object>;
                return new ForemindEvent(fields ?? throw new FormatException());
            }
        }

        static Uri EventsUrl(ForemindOptions options)
        {
            var socket = ForemindOptions.SocketUrl(options.Url);
            var scheme = socket.Scheme == "wss" ? "https" : "http";
            return new Uri($"{scheme}://{socket.Authority}/v1/worlds/{Uri.EscapeDataString(options.World ?? "")}/events");
        }
    }
}
