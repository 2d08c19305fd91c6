"""Labelled statements of players about themselves, for `foremind eval statements`.

`sentences.jsonl` was written without a look at the rules, `earlier_sentences.jsonl` before the
first of them. `adversarial_sentences.jsonl` was made up to mislead the rules, which were then
adjusted on all of it: its two halves say nothing of new sentences. `fresh_sentences.jsonl` was written
after that and before the rules were cut: it tells what these are worth on what nobody had looked at.
A line is one message:

- `text`, and `at`, when it was said;
- `facts`: what a profile should contain afterwards. `slot` is the title of the entry: for a
  favourite "favourite colour", "favourite film" (spelled like this, the noun as the player wrote
  it); for all others the slot itself. `value` may give several acceptable ways to write it, divided
  by "|". Case and articles do not count. Of people, animals and named things a value has the kind
  and the name: "sister Lena", "dog Scout", "boat Petrel".
- `plain`: whether the facts are stated so plainly that a careful rule should read all of them. If
  not, none need be read; in either case nothing else may be.
"""
