using System.Collections.Generic;

namespace Foremind
{
    /// <summary>An event of the server, also one of a later version.</summary>
    public sealed class ForemindEvent
    {
        internal ForemindEvent(Dictionary<string, object> fields)
        {
            Fields = fields;
        }

        /// <summary>Its fields, as <see cref="ForemindJson"/> reads them.</summary>
        public IReadOnlyDictionary<string, object> Fields { get; }

        /// <summary>Its type, such as <see cref="ForemindProtocol.ResponseDone"/>.</summary>
        public string Type => Text("type");

        /// <summary>Its number in the session.</summary>
        public long Seq => (long)Number("seq");

        /// <summary>A field's text; null if it has none.</summary>
        public string Text(string field) => Value(field) as string;

        /// <summary>A field's number; 0 if it has none.</summary>
        public double Number(string field) => Value(field) is double number ? number : 0;

        /// <summary>Whether a field is true.</summary>
        public bool Flag(string field) => Value(field) is bool flag && flag;

        /// <summary>The fields of a field; null if it has none.</summary>
        public Dictionary<string, object> Object(string field) => Value(field) as Dictionary<string, object>;

        /// <summary>The elements of a field; null if it has none.</summary>
        public List<object> List(string field) => Value(field) as List<object>;

        object Value(string field) => Fields.TryGetValue(field, out var value) ? value : null;
    }

    public enum ForemindState
    {
        Connecting,
        Open,

        /// <summary>Until the next attempt to connect.</summary>
        Waiting,

        /// <summary>For good, until <see cref="ForemindClient.Open"/> is called again.</summary>
        Closed,
    }

    /// <summary>What became of the connection.</summary>
    public sealed class ForemindStateChange
    {
        internal ForemindStateChange(ForemindState state, int code, string reason, double retryS)
        {
            State = state;
            Code = code;
            Reason = reason;
            RetryS = retryS;
        }

        public ForemindState State { get; }

        /// <summary>With which the connection was closed; 0 if it never was one, or broke off.</summary>
        public int Code { get; }

        public string Reason { get; }

        /// <summary>How long <see cref="ForemindState.Waiting"/> lasts, in seconds.</summary>
        public double RetryS { get; }
    }
}
