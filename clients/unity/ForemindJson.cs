using System;
using System.Collections;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace Foremind
{
    /// <summary>
    /// JSON as values: a <c>Dictionary&lt;string, object&gt;</c>, a <c>List&lt;object&gt;</c>, a
    /// <c>string</c>, a <c>double</c> for every number, a <c>bool</c> or <c>null</c>.
    /// </summary>
    public static class ForemindJson
    {
        internal const int MaxDepth = 64; // deeper than any message; the reader and the writer recurse

        /// <summary>Return the value of a JSON text.</summary>
        /// <exception cref="FormatException">It is not JSON, or more than 64 levels deep.</exception>
        public static object Read(string text)
        {
            return new JsonReader(text).ReadDocument();
        }

        /// <summary>
        /// Return the JSON text of a value, in which numbers may be of any type, and dictionaries and
        /// lists too.
        /// </summary>
        /// <exception cref="ArgumentException">
        /// JSON has no such value, or it is more than 64 levels deep.
        /// </exception>
        public static string Write(object value)
        {
            var text = new StringBuilder();
            WriteValue(value, text, 0);
            return text.ToString();
        }

        static void WriteValue(object value, StringBuilder text, int depth)
        {
            if (depth > MaxDepth) throw new ArgumentException($"expected at most {MaxDepth} levels of JSON");
            if (value == null) text.Append("null");
            else if (value is bool flag) text.Append(flag ? "true" : "false");
            else if (value is string characters) WriteString(characters, text);
            else if (value is IDictionary members) WriteObject(members, text, depth);
            else if (value is IEnumerable elements) WriteArray(elements, text, depth);
            else text.Append(Number(value));
        }

        static string Number(object value)
        {
            var isNumber = value is IConvertible && value.GetType().IsPrimitive && !(value is char);
            if (!isNumber && !(value is decimal))
            {
                throw new ArgumentException($"expected a value that JSON has, got a {value.GetType()}");
            }
            var number = Convert.ToDouble(value, CultureInfo.InvariantCulture);
            if (double.IsNaN(number) || double.IsInfinity(number))
            {
                throw new ArgumentException($"expected a number that JSON has, got {number}");
            }
            var format = value is double || value is float ? "R" : null; // what is read is the same number
            return ((IFormattable)value).ToString(format, CultureInfo.InvariantCulture);
        }

        static void WriteObject(IDictionary members, StringBuilder text, int depth)
        {
            text.Append('{');
            var separator = "";
            foreach (DictionaryEntry member in members)
            {
                text.Append(separator);
                WriteString(member.Key as string ?? throw new ArgumentException("expected names that are strings"), text);
                text.Append(':');
                WriteValue(member.Value, text, depth + 1);
                separator = ",";
            }
            text.Append('}');
        }

        static void WriteArray(IEnumerable elements, StringBuilder text, int depth)
        {
            text.Append('[');
            var separator = "";
            foreach (var element in elements)
            {
                text.Append(separator);
                WriteValue(element, text, depth + 1);
                separator = ",";
            }
            text.Append(']');
        }

        static void WriteString(string characters, StringBuilder text)
        {
            text.Append('"');
            for (var index = 0; index < characters.Length; index++)
            {
                var character = characters[index];
                if (char.IsSurrogatePair(characters, index))
                {
                    text.Append(character).Append(characters[++index]);
                }
                else if (character == '"' || character == '\\')
                {
                    text.Append('\\').Append(character);
                }
                else if (character < ' ' || char.IsSurrogate(character)) // UTF-8 has no lone surrogates
                {
                    text.Append("\\u").Append(((int)character).ToString("x4", CultureInfo.InvariantCulture));
                }
                else
                {
                    text.Append(character);
                }
            }
            text.Append('"');
        }
    }

    internal sealed class JsonReader
    {
        readonly string _text;
        int _position;

        internal JsonReader(string text)
        {
            _text = text ?? throw new ArgumentNullException(nameof(text));
        }

        internal object ReadDocument()
        {
            var value = ReadValue(0);
            SkipWhiteSpace();
            if (_position < _text.Length) throw Unexpected("the end");
            return value;
        }

        object ReadValue(int depth)
        {
            if (depth > ForemindJson.MaxDepth) throw Unexpected($"at most {ForemindJson.MaxDepth} levels");
            SkipWhiteSpace();
            switch (Next())
            {
                case '{':
                    return ReadObject(depth);
                case '[':
                    return ReadArray(depth);
                case '"':
                    return ReadString();
                case 't':
                    return ReadWord("true", true);
                case 'f':
                    return ReadWord("false", false);
                case 'n':
                    return ReadWord("null", null);
                default:
                    return ReadNumber();
            }
        }

        Dictionary<string, object> ReadObject(int depth)
        {
            var members = new Dictionary<string, object>();
            _position++;
            if (Skip('}')) return members;
            do
            {
                SkipWhiteSpace();
                if (Next() != '"') throw Unexpected("a name");
                var name = ReadString();
                if (!Skip(':')) throw Unexpected("a colon");
                members[name] = ReadValue(depth + 1);
            }
            while (Skip(','));
            if (!Skip('}')) throw Unexpected("a comma or the end of the object");
            return members;
        }

        List<object> ReadArray(int depth)
        {
            var elements = new List<object>();
            _position++;
            if (Skip(']')) return elements;
            do
            {
                elements.Add(ReadValue(depth + 1));
            }
            while (Skip(','));
            if (!Skip(']')) throw Unexpected("a comma or the end of the array");
            return elements;
        }

        string ReadString()
        {
            var characters = new StringBuilder();
            _position++;
            while (true)
            {
                var character = Next();
                if (character < ' ') throw Unexpected("the rest of a string");
                _position++;
                if (character == '"') return characters.ToString();
                characters.Append(character == '\\' ? ReadEscape() : character);
            }
        }

        char ReadEscape()
        {
            const string escapes = "\"\\/bfnrt";
            var character = Next();
            if (character == 'u') return ReadCodeUnit();
            var index = escapes.IndexOf(character);
            if (index < 0) throw Unexpected("an escape of JSON");
            _position++;
            return "\"\\/\b\f\n\r\t"[index];
        }

        char ReadCodeUnit()
        {
            _position++;
            var code = 0;
            for (var digit = 0; digit < 4; digit++)
            {
                if (!Uri.IsHexDigit(Next())) throw Unexpected("four hexadecimal digits");
                code = code * 16 + Uri.FromHex(_text[_position++]);
            }
            return (char)code;
        }

        object ReadWord(string word, object value)
        {
            if (string.CompareOrdinal(_text, _position, word, 0, word.Length) != 0) throw Unexpected(word);
            _position += word.Length;
            return value;
        }

        object ReadNumber()
        {
            const NumberStyles style =
                NumberStyles.AllowLeadingSign | NumberStyles.AllowDecimalPoint | NumberStyles.AllowExponent;
            var start = _position;
            while (_position < _text.Length && "+-.0123456789Ee".IndexOf(_text[_position]) >= 0) _position++;
            var digits = _text.Substring(start, _position - start);
            if (double.TryParse(digits, style, CultureInfo.InvariantCulture, out var number)) return number;
            _position = start;
            throw Unexpected("a value");
        }

        void SkipWhiteSpace()
        {
            while (_position < _text.Length && " \t\r\n".IndexOf(_text[_position]) >= 0) _position++;
        }

        bool Skip(char expected)
        {
            SkipWhiteSpace();
            if (Next() != expected) return false;
            _position++;
            return true;
        }

        char Next()
        {
            return _position < _text.Length ? _text[_position] : throw Unexpected("more");
        }

        FormatException Unexpected(string expected)
        {
            return new FormatException($"JSON: expected {expected} at character {_position}");
        }
    }
}
