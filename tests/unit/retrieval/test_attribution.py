"""Which memories a reply used."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from foremind.domain.memory import Recalled
from foremind.retrieval.access_counts import used_memories

LENA = "My sister Lena is getting married in Faro, and I have to give a speech."
BOAT = "I bought an old sailing boat. She's called Zephyrine, and she leaks."
MADEIRA = "I promised my father to sail to Madeira with him before he turns seventy."
SHELLFISH = "I can't eat shellfish. It nearly killed me once in Porto."
SPEAKING = "I'm terrified of speaking in front of people."
SCOUT = "My dog Scout is afraid of thunder."
MARATHON = "I'm training for my first marathon, in Lisbon."
KNEE = "My knee hurts whenever I run downhill."
TOM = "My brother Tom thinks I am mad to run it."
NOVEL = "I'm writing a novel about a city under the ice."
MAREN = "My heroine is called Maren, and she steals maps."
VIOLIN = "I regret that I gave up the violin when I was twelve."
VALERIAN = "Camomile does nothing for me, but valerian helps me sleep."
INES = "My grandmother Inès grew lavender behind her house."
NURSE = "I start a new job as a nurse in the children's ward on Monday."
TEA = "I prefer tea"
BAKERY = "I work at the bakery by the harbour"
BEACH = "I love going to the beach in summer"
HOME = "Hi, I have just come home from work"
WALNUTS = "I am allergic to walnuts"
HELLO = "Hello"
PIET = "My grandson Piet collects stamps from Peru."
VOLVO = "I drive an old red Volvo to work."
ARM = "I broke my left arm on a ski trip."
WHISTLING = "I hate it when people whistle."
PEAR = "We bought a house with a pear tree."
SHIFT = "My shift ends at six."
GHENT = "I was born in Ghent."
SALT = "The doctor said that I should eat less salt."


@dataclass(frozen=True)
class Case:
    """A reply to a message, the memories that it uses, and others that were recalled."""

    message: str
    reply: str
    used: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    history: tuple[str, ...] = ()


CASES = [
    # Asked for, and told.
    Case("What is my boat called?", "She's called Zephyrine.", (BOAT,), (MADEIRA,)),
    Case("What is my boat called?", "Zephyrine. Does she still leak?", (BOAT,), (LENA,)),
    Case(
        "What did I promise my father?", "To sail to Madeira before he turns seventy.",
        (MADEIRA,), (BOAT, SPEAKING),
    ),
    Case("What can't I eat?", "Shellfish, after what happened in Porto.", (SHELLFISH,), (TEA,)),
    Case("What can't I eat?", "Anything from the sea with a shell.", (), (SHELLFISH,)),
    Case("What is my dog afraid of?", "Thunder, poor thing.", (SCOUT,), (SPEAKING,)),
    Case("What am I training for?", "For a marathon!", (MARATHON,), (KNEE, TOM)),
    Case("Who thinks I am mad?", "Tom does. Brothers are like that.", (TOM,), (MARATHON,)),
    Case("What is my novel about?", "About a city under the ice.", (NOVEL,), (MAREN,)),
    Case("Who is my heroine?", "Maren, the thief of maps.", (MAREN,), (NOVEL,)),
    Case("What do I regret?", "That you gave up the violin.", (VIOLIN,), (NOVEL, MAREN)),
    Case("What helps me sleep?", "Valerian, you told me.", (VALERIAN,), (NURSE,)),
    Case("Who grew lavender?", "Your grandmother did.", (INES,), (VALERIAN,)),
    Case("What is my new job?", "You start as a nurse on Monday.", (NURSE,), (BAKERY,)),
    Case("Where do I work?", "At the bakery, down by the harbour.", (BAKERY,), (HOME, NURSE)),
    Case("What do I drink?", "Tea.", (TEA,), (WALNUTS, HELLO)),
    # Brought up without being asked for.
    Case("I'm off for a walk", "Give Scout a pat from me.", (SCOUT,), (KNEE,)),
    Case("Any news of my family?", "Isn't Lena getting married soon?", (LENA,), (TOM,)),
    Case(
        "Could I eat this cake?", "Are there walnuts in it? You are allergic.",
        (WALNUTS,), (SHELLFISH, TEA),
    ),
    Case("I can't sleep again", "No valerian left?", (VALERIAN,), (SPEAKING,)),
    Case(
        "I fly to Faro next week", "Is your speech ready? Lena gets married only once.",
        (LENA,), (SPEAKING, MARATHON),
    ),
    Case("My leg aches", "Your knee again? Then don't run downhill.", (KNEE,), (MARATHON, TOM)),
    Case("I am back from the harbour", "How is Zephyrine?", (BOAT,), (BAKERY,)),
    Case("I wrote all night", "Does Maren still steal maps?", (MAREN,), (NOVEL, VIOLIN)),
    # Only what the message says is repeated.
    Case("My sister Lena called today", "How is Lena, your sister?", (), (LENA, TOM)),
    Case("I took Zephyrine out today", "Zephyrine! And she didn't sink.", (), (BOAT,)),
    Case("I ran a marathon in Lisbon", "A marathon, in Lisbon! Well done.", (), (MARATHON, TOM)),
    Case("The dog hid from the thunder", "Thunder frightens every dog.", (), (SCOUT,)),
    Case("My novel has a city under ice", "A city of ice! Tell me more.", (), (NOVEL, MAREN)),
    Case("My father is seventy today", "Seventy! Wish your father well.", (), (MADEIRA,)),
    Case("I am allergic to walnuts", "Walnuts, then. I won't bake any.", (), (WALNUTS,)),
    # Or what was said a moment ago.
    Case(
        "Is she fast?", "Zephyrine is as fast as the wind.", (), (BOAT, MADEIRA),
        ("My boat is called Zephyrine", "A fine name."),
    ),
    Case(
        "And what then?", "Then your nurse's shoes have to wait until Monday.", (), (NURSE,),
        ("On Monday I start as a nurse", "Buy good shoes."),
    ),
    Case(
        "Guess who came", "Lena? The bride herself?", (), (LENA,),
        ("Lena asked for you", "Your sister?"),
    ),
    # Words that anybody says.
    Case("Tell me a story", "In summer, a girl loved the sea.", (), (BEACH, BOAT)),
    Case("What did you do?", "I worked on the lamp and came home late.", (), (HOME, BAKERY)),
    Case("Good morning", "Hello! What a day to sail.", (), (HELLO, BOAT)),
    Case("Hi", "Hello! I have just put the kettle on.", (), (HELLO, HOME)),
    Case("I'm bored", "Then go for a run.", (), (KNEE, TOM)),
    Case("What a view", "The people of this city never look up.", (), (NOVEL, SPEAKING)),
    Case("Shall I call?", "Call your mother first.", (), (BOAT, MAREN)),
    Case("It rains", "It was raining when the old ship burned.", (), (BOAT, SCOUT)),
    Case("What's that song?", "My father sang it to me.", (), (MADEIRA, VIOLIN)),
    Case("I'm at the station", "Which train? I start to get curious.", (), (NURSE, MARATHON)),
    Case("How was school?", "I think they gave me a map of the house.", (), (TOM, INES, MAREN)),
    Case("I feel sick", "Sit down in front of the fire.", (), (SPEAKING, SHELLFISH)),
    Case("What's for lunch?", "I would eat anything once.", (), (SHELLFISH, WALNUTS)),
    Case("Do you like me?", "I love talking to you.", (), (BEACH, SPEAKING)),
    Case("What is your job?", "I keep the light by the harbour.", (), (BAKERY, NURSE)),
    Case("I have to go", "Go, and come back soon.", (), (BEACH, HOME)),
    # Other languages.
    Case(
        "Wie heißt mein Boot?", "Zephyrine heißt es.",
        ("Ich habe ein altes Segelboot gekauft, es heißt Zephyrine.",), ("Ich mag Tee.",),
    ),
    Case(
        "Guten Morgen", "Schön, dass du da bist!",
        (), ("Ich bin schön müde heute.", "Meine Schwester heißt Lena."),
    ),
    Case(
        "¿Qué no puedo comer?", "Mariscos, desde lo de Oporto.",
        ("No puedo comer mariscos, casi me muero en Oporto.",), ("Prefiero el té.",),
    ),
    Case(
        "私の犬の名前は?", "スカウトですね。", ("犬の名前はスカウトです。",), ("お茶が好きです。",)
    ),
    Case("我的狗怕什么?", "它怕打雷。", ("我的狗小白怕打雷。",), ("我喜欢喝茶。",)),
    Case("早上好", "早上好!今天想做什么?", (), ("我喜欢喝茶。", "我今天很累。")),
]  # fmt: skip
# Replies of the length that models write.
LONGER = [
    Case(
        "What is my boat called?",
        "Oh, the one that leaks? You named her Zephyrine, and I still think it suits an "
        "old lady who takes in water and complains about the weather.",
        (BOAT,),
        (MADEIRA, LENA),
    ),
    Case(
        "I had a long day",
        "Then sit down and let me put the kettle on. There is a chair by the window, and "
        "nobody will ask anything of you until the rain has stopped.",
        (),
        (BOAT, HOME, SPEAKING, BEACH),
    ),
    Case(
        "My boat needs paint",
        "An old hull always does. I would start with the stern, while the sun is out, and "
        "give it two coats before the winter comes.",
        (),
        (BOAT, MADEIRA),
    ),
    Case(
        "What shall I cook for my sister?",
        "Give her soup. When people come in from the cold, they never ask for more than "
        "something warm and somebody who listens to them.",
        (),
        (LENA, SPEAKING, SHELLFISH),
    ),
    Case(
        "What shall I cook for my sister?",
        "Something festive, if she is to be married soon. But leave the shellfish to the "
        "others, I do not want to lose you to a mussel in Faro.",
        (LENA, SHELLFISH),
        (SPEAKING,),
    ),
    Case(
        "I'm nervous about tomorrow",
        "Of course you are: a speech at a wedding, in front of all those people. Breathe, "
        "look at Lena, and tell them what only you know.",
        (LENA, SPEAKING),
        (NURSE, BOAT),
    ),
    Case(
        "I went for a run",
        "And your knee? If it still hurts on the way down, walk those parts. Lisbon will "
        "wait for you, and so will I.",
        (KNEE, MARATHON),
        (TOM,),
    ),
    Case(
        "I went for a run",
        "Good. The air is clear after a storm, and one thinks better with tired legs. Did "
        "you see the gulls on the roof of the old customs house?",
        (),
        (KNEE, MARATHON, TOM, BOAT),
    ),
    Case(
        "Tell me about your day",
        "I polished the lens, argued with a gull, and wrote three lines in the log. In "
        "the afternoon a dog came up the stairs, afraid of nothing at all.",
        (),
        (SCOUT, NOVEL),
    ),
    Case(
        "Do you think I can finish it?",
        "A page a day, you said, until the ice breaks. Maren would not give up, and she "
        "has far worse maps than you.",
        (MAREN,),
        (VIOLIN,),
    ),
    Case(
        "I bought a violin",
        "You did? Then twelve was not the end of it after all. Play something slow first, "
        "and do not mind the neighbours.",
        (VIOLIN,),
        (BOAT,),
    ),
    Case(
        "I can't sleep",
        "Have you got any valerian left? I know that camomile does nothing for you. Close "
        "the window, and count the seconds between the flashes.",
        (VALERIAN,),
        (SPEAKING, INES),
    ),
    Case(
        "I can't sleep",
        "Nobody can, with this wind. Let me tell you something dull: how the keeper "
        "before me counted ships, and gave every one of them a name.",
        (),
        (VALERIAN, BOAT, SHELLFISH),
    ),
    Case(
        "I start work on Monday",
        "On Monday already! Sleep well before that, and have something warm for "
        "breakfast. I will keep a light on for you.",
        (),
        (NURSE, VALERIAN, BAKERY),
    ),
    Case(
        "I start work on Monday",
        "The children's ward will be lucky to have such a nurse. Wear good shoes, and "
        "keep a bad joke ready for the first who cries.",
        (NURSE,),
        (BAKERY,),
    ),
    Case(
        "There's thunder outside",
        "Poor Scout! Let him under the blanket, and put on some music until it is over. "
        "Thunder never lasts as long as one thinks.",
        (SCOUT,),
        (TOM,),
    ),
    Case(
        "There's thunder outside",
        "I like it, I must say. It makes the whole tower hum, and afterwards everything "
        "smells of salt and stone. Are you somewhere dry?",
        (),
        (SCOUT, TOM, TEA),
    ),
    Case(
        "My brother called",
        "And, does he still think that you are mad? Tell Tom from me that anybody who "
        "gets up at five in order to run has my respect.",
        (TOM,),
        (LENA, MARATHON),
    ),
    Case(
        "My brother called",
        "How nice. Do you two talk often? I have not heard from mine in years, but then "
        "he never was one for letters, or for speaking.",
        (),
        (TOM, LENA, SPEAKING),
    ),
    Case(
        "What do you want to drink?",
        "Tea, please, as you do. And if there is a biscuit without walnuts, we can share "
        "it like civilised people.",
        (TEA, WALNUTS),
        (HELLO,),
    ),
    Case(
        "Was machst du?",
        "Ich putze die Lampe und warte auf dich. Hat Lena schon geheiratet, oder ist die "
        "Hochzeit erst im Sommer?",
        ("Meine Schwester Lena heiratet bald in Faro.",),
        ("Ich mag Tee.", "Ich habe Angst vor Gewitter."),
    ),
    Case(
        "Was machst du?",
        "Ich putze die Lampe und schaue aufs Meer. Es ist ruhig heute, und ich habe viel "
        "Zeit, an alles Mögliche zu denken.",
        (),
        (
            "Meine Schwester Lena heiratet bald in Faro.",
            "Ich habe ein altes Boot gekauft.",
            "Heute war ein langer Tag.",
        ),
    ),
    Case(
        "今日は疲れた",
        "お疲れさま。スカウトの散歩はもう終わりましたか?温かいお茶を飲んで、ゆっくり休んでくださいね。",
        ("犬の名前はスカウトです。",),
        ("妹がファロで結婚します。",),
    ),
    Case(
        "今日は疲れた",
        "お疲れさま。温かいものを飲んで、ゆっくり休んでくださいね。明日はきっといい日になりますよ。",
        (),
        ("犬の名前はスカウトです。", "お茶が好きです。", "妹がファロで結婚します。"),
    ),
]
# Written and labelled once the rule was chosen.
UNSEEN = [
    Case(
        "What shall I give him for his birthday?",
        "Does Piet still collect stamps? A set from Peru would make him happy, and it "
        "fits in an envelope.",
        (PIET,),
        (VOLVO, WHISTLING),
    ),
    Case(
        "What shall I give him for his birthday?",
        "Something he can take apart. Boys of that age like to see how a thing works, "
        "more than they like the thing itself.",
        (),
        (PIET, VOLVO, SHIFT),
    ),
    Case(
        "The car won't start",
        "That old Volvo of yours? Try the battery first; it is always the battery on a "
        "morning like this.",
        (VOLVO,),
        (ARM,),
    ),
    Case(
        "The car won't start",
        "Is there a garage nearby? Otherwise take the bus to work, and deal with it tonight.",
        (),
        (VOLVO, SHIFT, PEAR),
    ),
    Case(
        "I'm going skiing",
        "Again? Mind your left arm this time, one broken bone is enough for a winter.",
        (ARM,),
        (GHENT,),
    ),
    Case(
        "I'm going skiing",
        "How lovely. Send me a picture of the peaks when you are up there, with the sun on them.",
        (),
        (ARM, GHENT, PEAR),
    ),
    Case(
        "Somebody is whistling outside",
        "Close the window then, I know how much you hate it.",
        (WHISTLING,),
        (PIET,),
    ),
    Case(
        "What a noise",
        "Are people whistling again? I would hate that, too.",
        (WHISTLING,),
        (SHIFT,),
    ),
    Case(
        "The garden is in bloom",
        "The pear tree too? Then you will have fruit in September, if the frost spares it.",
        (PEAR,),
        (SALT,),
    ),
    Case(
        "The garden is in bloom",
        "I envy you. Here there is only moss, and a geranium that has seen better days.",
        (),
        (PEAR, PIET),
    ),
    Case(
        "When are you free?",
        "Any time. And you, after six, when your shift ends?",
        (SHIFT,),
        (VOLVO,),
    ),
    Case("Where am I from?", "From Ghent, if I remember rightly.", (GHENT,), (PIET, PEAR)),
    Case("What should I avoid?", "Salt, said the doctor.", (SALT,), (WHISTLING,)),
    Case("I made soup", "With less salt, I hope, as the doctor told you.", (SALT,), (PEAR,)),
    Case(
        "I made soup",
        "Then put a bowl aside for me. What is in it, leeks?",
        (),
        (SALT, PEAR, GHENT),
    ),
    Case(
        "Good night",
        "Good night. Sleep well, and dream of nothing in particular.",
        (),
        (ARM, WHISTLING, SHIFT, SALT),
    ),
    Case(
        "I bought a red hat",
        "Red suits you. Wear it on Sunday, when we go to the old market.",
        (),
        (VOLVO, ARM),
    ),
    Case("Piet came by", "How is he? I suppose that he has grown again.", (), (PIET,)),
]


def recalled(number: int, content: str) -> Recalled:
    """A recalled memory."""
    now = datetime(2026, 5, 1, tzinfo=UTC)
    return Recalled(number, content, "user", "conversation", 0.5, now, False, 0.5, 0.5, 0.5, 0.5)


def used_in(case: Case) -> set[str]:
    """Return the contents of the memories that the rule says are used."""
    contents = [*case.used, *case.others]
    memories = [recalled(number, content) for number, content in enumerate(contents)]
    said = [*case.history, case.message]
    return {contents[number] for number in used_memories(case.reply, memories, said)}


@pytest.mark.parametrize("cases", [CASES, LONGER, UNSEEN], ids=["short", "longer", "unseen"])
def test_a_memory_is_used_where_a_reply_takes_something_of_it(cases: list[Case]) -> None:
    """Of what is said to be used, nine in ten are; of what is used, seven in ten are found."""
    found = sum(len(used_in(case)) for case in cases)
    right = sum(len(used_in(case) & set(case.used)) for case in cases)
    assert right / found >= 0.9
    assert right / sum(len(case.used) for case in cases) >= 0.7
