// Drives the client in C# as driver.mjs does that in JavaScript: commands in, events out, as JSON
// lines. Started with the URL and the options as JSON.
using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Foremind;

static class Driver
{
    const int FrameMs = 5; // of a game that polls in every frame

    static readonly TextWriter Output =
        new StreamWriter(Console.OpenStandardOutput(), new UTF8Encoding(false)) { AutoFlush = true };

    static readonly Thread GameThread = Thread.CurrentThread;

    static void Main(string[] arguments)
    {
        var options = (Dictionary<string, object>)ForemindJson.Read(arguments[1]);
        var mind = new ForemindClient(ClientOptions(arguments[0], options));
        if (options.ContainsKey("offline"))
        {
            for (var line = Console.In.ReadLine(); line != null; line = Console.In.ReadLine()) Report(mind, line);
            return;
        }
        var state = ForemindState.Connecting;
        mind.Received += received =>
        {
            Tell(received.Fields);
            if (options.ContainsKey("throws")) throw new IOException("a handler that fails");
        };
        mind.StateChanged += change =>
        {
            state = change.State;
            Tell(Description(change));
            if (options.ContainsKey("impatient") && state == ForemindState.Waiting) mind.Open();
        };
        var lines = new BlockingCollection<string>();
        new Thread(() => ReadLines(lines)) { IsBackground = true }.Start();
        mind.Open();
        while (state != ForemindState.Closed)
        {
            while (lines.TryTake(out var line, FrameMs)) Run(mind, (Dictionary<string, object>)ForemindJson.Read(line));
            Poll(mind);
        }
    }

    static void Report(ForemindClient mind, string line)
    {
        var events = (List<object>)((Dictionary<string, object>)ForemindJson.Read(line))["report"];
        var told = new Dictionary<string, object>();
        try
        {
            told["reported"] = mind.Report(events.Cast<Dictionary<string, object>>()).GetAwaiter().GetResult();
        }
        catch (ForemindException error)
        {
            told["failed"] = error.Code;
        }
        Tell(told);
    }

    static void Poll(ForemindClient mind)
    {
        try
        {
            mind.Poll();
        }
        catch (IOException)
        {
            Tell(new Dictionary<string, object> { ["type"] = "thrown" });
        }
    }

    static ForemindOptions ClientOptions(string url, Dictionary<string, object> options)
    {
        var result = new ForemindOptions { Url = url, UserId = "ana", FirstRetryS = 0.01 };
        result.World = (string)Value(options, "world");
        result.Scene = (string)Value(options, "scene");
        if (result.World == null) result.Companion = "wren";
        if (options.TryGetValue("timeZone", out var zone)) result.TimeZone = (string)zone;
        if (options.TryGetValue("token", out var token)) result.Token = (string)token;
        if (options.TryGetValue("firstRetryMs", out var retry)) result.FirstRetryS = (double)retry / 1000;
        if (options.TryGetValue("answerTimeoutMs", out var timeout)) result.AnswerTimeoutS = (double)timeout / 1000;
        if (options.TryGetValue("tokens", out var tokens)) result.TokenSource = TokenSource((List<object>)tokens);
        return result;
    }

    static Func<Task<string>> TokenSource(List<object> tokens)
    {
        return async () =>
        {
            var next = (Dictionary<string, object>)tokens[0];
            if (tokens.Count > 1) tokens.RemoveAt(0);
            await Task.Yield();
            if (next.ContainsKey("fails")) throw new IOException((string)next["fails"]);
            return (string)next["token"];
        };
    }

    static void ReadLines(BlockingCollection<string> lines)
    {
        for (var line = Console.In.ReadLine(); line != null; line = Console.In.ReadLine()) lines.Add(line);
    }

    static Dictionary<string, object> Description(ForemindStateChange change)
    {
        return new Dictionary<string, object>
        {
            ["type"] = "state",
            ["state"] = change.State.ToString().ToLowerInvariant(),
            ["code"] = change.Code,
            ["reason"] = change.Reason,
            ["retryMs"] = change.RetryS * 1000,
        };
    }

    static void Tell(object fields)
    {
        if (Thread.CurrentThread != GameThread) throw new InvalidOperationException("told on another thread");
        Output.WriteLine(ForemindJson.Write(fields));
    }

    static void Run(ForemindClient mind, Dictionary<string, object> command)
    {
        try
        {
            Do(mind, command);
        }
        catch (Exception error) when (error is ArgumentException || error is InvalidOperationException)
        {
            Tell(new Dictionary<string, object> { ["type"] = "rejected", ["message"] = error.Message });
        }
    }

    // With `times`, the text is repeated.
    static void Do(ForemindClient mind, Dictionary<string, object> command)
    {
        var given = new Dictionary<string, object> { ["times"] = 1.0 };
        foreach (var member in command) given[member.Key] = member.Value;
        Func<object, string> repeated = text =>
            text == null ? null : string.Concat(Enumerable.Repeat((string)text, (int)(double)given["times"]));
        if (given.ContainsKey("reopen"))
        {
            mind.Close();
            mind.Open();
        }
        var how = Member(given, "how");
        var to = ((List<object>)Value(how, "to"))?.Cast<string>();
        var volume = (string)Value(how, "volume");
        if (given.TryGetValue("type", out var drafts))
        {
            foreach (var draft in (List<object>)drafts) mind.Type(repeated(draft), to, volume);
        }
        if (given.TryGetValue("send", out var message))
        {
            var settings = (Dictionary<string, object>)Value(how, "settings");
            mind.Send(repeated(message), !how.ContainsKey("remember"), settings, to, volume);
        }
        if (given.ContainsKey("state"))
        {
            var state = Member(given, "state");
            mind.SetState(repeated(Value(state, "task")), (Dictionary<string, object>)Value(state, "flags"));
        }
        if (given.TryGetValue("cancel", out var response)) mind.Cancel((string)response);
        if (given.ContainsKey("clear")) mind.Clear();
        if (given.TryGetValue("answer", out var action)) mind.AnswerAction((string)action, given["result"]);
        if (given.TryGetValue("edit", out var edited)) mind.Edit((string)edited, (string)given["text"]);
        if (given.TryGetValue("regenerate", out var answered)) mind.Regenerate((string)answered);
        if (given.TryGetValue("choose", out var chosen)) mind.Choose((string)chosen, (int)(double)given["index"]);
    }

    static object Value(Dictionary<string, object> members, string name)
    {
        return members.TryGetValue(name, out var value) ? value : null;
    }

    static Dictionary<string, object> Member(Dictionary<string, object> members, string name)
    {
        return (Dictionary<string, object>)Value(members, name) ?? new Dictionary<string, object>();
    }
}
