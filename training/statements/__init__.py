"""Labelled statements of players about themselves, for `foremind eval statements`.

`sentences.jsonl` was written without a look at the rules, `earlier_sentences.jsonl` before the
first of them. `adversarial_sentences.jsonl` was made up to mislead the rules, which were then
adjusted on all of it. `fresh_sentences.jsonl` was written before the rules were cut to those that
read nothing unless its form shows what it is; what was missed and misread in it was looked at once
they were. Tests hold the rules to all four. A line is one message:

- `text`, and `at`, when it was said;
- `facts`: what a profile should contain afterwards. `slot` is the title of the entry: for a
  favourite "favourite colour", "favourite film" (spelled like this, the noun as the player wrote
  it); for all others the slot itself. `value` may give several acceptable ways to write it, divided
  by "|". Case and articles do not count. Of people, animals and named things a value has the kind
  and the name: "sister Lena", "dog Scout", "boat Petrel".
- `plain`: whether the facts are stated so plainly that a careful rule should read all of them. If
  not, none need be read; in either case nothing else may be.
"""
