using System;
using System.Collections.Generic;
using System.Text;
using System.Threading.Tasks;

namespace Foremind
{
    /// <summary>A token that was asked for. Times are seconds of the client's clock.</summary>
    internal sealed class ForemindTokenRequest
    {
        const double TimeoutS = 30;

        readonly Task<string> _answer;
        readonly double _giveUpAt;

        internal ForemindTokenRequest(Func<Task<string>> source, double now)
        {
            _giveUpAt = now + TimeoutS;
            try
            {
                _answer = source();
            }
            catch (Exception error) // the game's; it is told why there is no connection
            {
                _answer = Task.FromException<string>(error);
            }
        }

        /// <summary>Whether it is over: with a token, or with the reason why there is none.</summary>
        internal bool IsOver(double now, out string token, out string failure)
        {
            token = null;
            failure = null;
            if (_answer.IsFaulted) failure = _answer.Exception.GetBaseException().Message;
            else if (_answer.IsCanceled) failure = "it was cancelled";
            else if (!_answer.IsCompleted) failure = now < _giveUpAt ? null : "it took too long";
            else if ((token = _answer.Result) == null) failure = "it was null";
            return token != null || failure != null;
        }
    }

    internal static class ForemindToken
    {
        const double ShareOfLife = 0.8; // of a token, after which it is replaced

        /// <summary>
        /// Return the seconds until a token should be replaced; infinite if it does not say its end.
        /// It is read, not verified: the server does that.
        /// </summary>
        /// <param name="token">A signed token, or null.</param>
        /// <param name="now">Seconds since 1970.</param>
        internal static double RenewalDelay(string token, double now)
        {
            var claims = Claims(token);
            if (claims == null || !claims.TryGetValue("exp", out var end) || !(end is double expires))
            {
                return double.PositiveInfinity;
            }
            var issued = claims.TryGetValue("iat", out var start) && start is double time ? time : now;
            var left = expires - now; // by this machine's clock, which may be wrong
            var life = left > 0 ? Math.Min(expires - issued, left) : expires - issued;
            return Math.Max(1, ShareOfLife * life);
        }

        static Dictionary<string, object> Claims(string token)
        {
            var parts = (token ?? "").Split('.');
            if (parts.Length < 2) return null;
            var payload = parts[1].Replace('-', '+').Replace('_', '/');
            try
            {
                var bytes = Convert.FromBase64String(payload.PadRight((payload.Length + 3) / 4 * 4, '='));
                return ForemindJson.Read(Encoding.UTF8.GetString(bytes)) as Dictionary<string, object>;
            }
            catch (FormatException)
            {
                return null;
            }
        }
    }
}
