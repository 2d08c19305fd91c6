// Reads values as the client in C# does, one a line, and writes each again, or why it is refused.
using System;
using System.IO;
using System.Text;
using Foremind;

static class JsonEcho
{
    static void Main()
    {
        var output = new StreamWriter(Console.OpenStandardOutput(), new UTF8Encoding(false));
        for (var line = Console.In.ReadLine(); line != null; line = Console.In.ReadLine())
        {
            try
            {
                output.WriteLine(ForemindJson.Write(ForemindJson.Read(line)));
            }
            catch (FormatException error)
            {
                output.WriteLine(ForemindJson.Write(error.Message));
            }
        }
        output.Flush();
    }
}
