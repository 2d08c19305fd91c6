"""English word lists by meaning, for the rules that extract statements.

Lists instead of suffixes: "nurse" is a trade, "beginner" is not.
"""


def _listed(words: str) -> frozenset[str]:
    return frozenset(" ".join(word.split()) for word in words.split(",") if word.strip())


KIN = _listed(
    """mother, father, mum, mom, dad, sister, brother, wife, husband, partner, spouse, fiancé,
    fiancée, fiance, fiancee, son, daughter, child, kid, baby, twin, girlfriend, boyfriend,
    grandmother, grandfather, grandma, grandpa, granny, nan, uncle, aunt, auntie, cousin, niece,
    nephew, grandson, granddaughter, grandchild, stepmother, stepfather, stepmum, stepdad,
    stepson, stepdaughter, stepsister, stepbrother, godmother, godfather, godson, goddaughter,
    sibling, toddler"""
)
KIN_MANY = _listed(
    """sisters, brothers, sons, daughters, children, kids, babies, twins, cousins, nieces, nephews,
    grandsons, granddaughters, grandchildren, siblings, uncles, aunts, boys, girls, stepsons,
    stepdaughters, stepsisters, stepbrothers"""
)
PARENT = _listed(
    """mother, father, mum, mom, dad, parent, grandmother, grandfather, grandma, grandpa"""
)
ANIMALS = _listed(
    """dog, puppy, cat, kitten, parrot, budgie, bird, canary, rabbit, bunny, hamster, gerbil, rat,
    guinea pig, ferret, horse, pony, donkey, goat, sheep, cow, pig, chicken, hen, rooster, duck,
    goose, tortoise, turtle, snake, lizard, gecko, iguana, fish, goldfish, frog, axolotl,
    spider, tarantula, llama, alpaca, hedgehog, parakeet, cockatiel, poodle, labrador,
    retriever, terrier, dachshund, beagle, corgi, husky, spaniel, bulldog, greyhound, collie,
    bee"""
)
ANIMALS_MANY = _listed(
    """dogs, puppies, cats, kittens, parrots, budgies, birds, canaries, rabbits, bunnies, hamsters,
    gerbils, mice, rats, guinea pigs, ferrets, horses, ponies, donkeys, goats, sheep, cows,
    pigs, chickens, hens, ducks, geese, tortoises, turtles, snakes, lizards, geckos, fish,
    goldfish, frogs, bees, llamas, alpacas, hedgehogs, parakeets"""
)
TRADES = _listed(
    """accountant, actor, actress, administrator, agent, analyst, anaesthetist, archaeologist,
    architect, artist, assistant, astronaut, astronomer, author, baker, banker, barber, barista,
    bartender, biologist, blacksmith, bookkeeper, bookseller, botanist, bricklayer, broker,
    builder, butcher, captain, caregiver, carer, caretaker, carpenter, cashier, caterer, chef,
    chemist, cleaner, clerk, coach, comedian, composer, conductor, consultant, cook, copywriter,
    counsellor, courier, curator, dancer, decorator, dentist, designer, detective, developer,
    diplomat, director, diver, doctor, driver, economist, editor, electrician, engineer,
    entrepreneur, estate agent, farmer, firefighter, fireman, fisherman, fisher, florist,
    freelancer, gardener, geologist, glazier, guard, guide, hairdresser, historian, housewife,
    illustrator, instructor, interpreter, investor, janitor, jeweller, joiner, journalist, judge,
    laboratory technician, labourer, lawyer, lecturer, librarian, lifeguard, linguist, locksmith,
    machinist, manager, masseur, masseuse, mathematician, mechanic, midwife, miner, model,
    musician, nanny, neurologist, nurse, nutritionist, officer, optician, painter, paramedic,
    pastor, pensioner, pharmacist, photographer, physicist, physiotherapist, pianist, pilot,
    plumber, poet, policeman, policewoman, politician, porter, postman, priest, producer,
    professor, programmer, psychiatrist, psychologist, publisher, radiologist, realtor,
    receptionist, researcher, sailor, salesman, saleswoman, salesperson, scientist, sculptor,
    secretary, security guard, shepherd, shopkeeper, singer, social worker, soldier, solicitor,
    statistician, steward, stewardess, student, supervisor, surgeon, surveyor, tailor, teacher,
    technician, therapist, toolmaker, trader, trainer, translator, tutor, undertaker, vet,
    veterinarian, violinist, waiter, waitress, warden, weaver, web developer, welder, worker,
    writer, youth worker, zookeeper, apprentice, intern, trainee, civil servant, stay-at-home
    dad, stay-at-home mum, stay-at-home mom, stay-at-home parent"""
)
STANDING = _listed("""self-employed, retired, unemployed, a student, freelancing, between jobs""")
FIELDS = _listed(
    """finance, marketing, it, tech, retail, healthcare, education, construction, advertising,
    logistics, tourism, hospitality, insurance, banking, publishing, sales, hr, film,
    television, games, agriculture, science, law, politics, media, engineering, software,
    design, catering, administration, security, research, customer service, customer support,
    human resources, accounting, social work, journalism, fashion, theatre, public relations,
    shipping, forestry"""
)
LANGUAGES = _listed(
    """afrikaans, albanian, amharic, arabic, armenian, basque, bengali, bosnian, breton, bulgarian,
    burmese, cantonese, catalan, chinese, croatian, czech, danish, dutch, english, esperanto,
    estonian, farsi, finnish, flemish, french, frisian, galician, georgian, german, greek,
    gujarati, hausa, hawaiian, hebrew, hindi, hungarian, icelandic, igbo, indonesian, irish,
    italian, japanese, javanese, kazakh, khmer, korean, kurdish, lao, latin, latvian,
    lithuanian, luxembourgish, macedonian, malay, maltese, mandarin, maori, marathi, mongolian,
    nepali, norwegian, pashto, persian, polish, portuguese, punjabi, quechua, romanian, russian,
    scots, serbian, sign language, sinhala, slovak, slovenian, somali, spanish, swahili,
    swedish, swiss german, tagalog, tamil, telugu, thai, tibetan, turkish, ukrainian, urdu,
    uzbek, vietnamese, welsh, xhosa, yiddish, yoruba, zulu"""
)
CONDITIONS = _listed(
    """adhd, add, asthma, arthritis, autism, anxiety, depression, diabetes, type 1 diabetes, type 2
    diabetes, dyslexia, dyscalculia, dyspraxia, eczema, epilepsy, endometriosis, fibromyalgia,
    hay fever, heart condition, high blood pressure, hypothyroidism, insomnia, ibs, lupus, me,
    migraine, migraines, ms, multiple sclerosis, narcolepsy, ocd, panic attacks, parkinson's,
    pcos, psoriasis, ptsd, sciatica, scoliosis, sleep apnoea, social anxiety, tinnitus,
    tourette's, vertigo, chronic pain, coeliac disease, celiac disease, crohn's, long covid,
    pacemaker, bipolar disorder"""
)
BODILY = _listed(
    """diabetic, deaf, blind, colour-blind, color-blind, colour blind, color blind, colourblind,
    colorblind, dyslexic, autistic, epileptic, asthmatic, anaemic, anemic, pregnant, bipolar,
    mute, hard of hearing, partially sighted, short-sighted, far-sighted, near-sighted,
    neurodivergent, hypoglycaemic, haemophiliac, left-handed, coeliac, celiac"""
)
DIETS = _listed(
    """vegan, vegetarian, pescatarian, flexitarian, teetotal, gluten-free, a vegan, a vegetarian, a
    pescatarian, a flexitarian, a teetotaller"""
)
PLACES = _listed(
    """city, town, village, countryside, country, coast, suburb, suburbs, island, mountains, hills,
    farm, flat, apartment, house, houseboat, boat, cottage, cabin, capital, north, south, east,
    west, sea, seaside, hamlet, outskirts, valley, bungalow, caravan, campervan, van, castle,
    netherlands, philippines, usa, uk, us, states, highlands, azores, algarve, alps, hague,
    bronx, bay, midlands, centre, center, forest, desert, peninsula, studio, monastery, hostel,
    dorm"""
)
NO_PLACES = _listed(
    """dream, dreams, fear, terror, hope, past, moment, present, now, bubble, denial, nightmare,
    hell, heaven, peace, money, nowhere, space, mars, venus, jupiter, saturn, lie, chaos,
    future, darkness, dread, harmony, sin, pain, misery, exile, poverty, luxury, silence, head,
    world, mess, anxiety, shadow, shadows, horror, simulation, fantasy, tears, tier, level,
    page, bed, plan, action, step, next, work, lunch, school, here, there, home, vacation,
    holiday, back, front, side, window, fun, serve, song, story, game, tomorrow, somewhere,
    anywhere, constant, everywhere, sleep, dinner, interesting, boring, awful, wonderful, time,
    times, hours, sweatpants, jeans, pyjamas, pajamas, leggings, hoodies, slippers, sandals,
    boots, shorts, dresses, clouds, books, stories, secret, style, limbo"""
)
NO_EMPLOYERS = _listed(
    """night, nights, home, hours, weekends, times, it, that, this, fun, ages, days, years, free, a
    living, living, me, you, myself, peanuts, first, last, least, all, once, money, them, him,
    her, weeks, months, day, dawn, noon, something, nothing, us, present, full, both,
    everything, christmas, tips, change, peace, long, now, height, heights, two, three, four, a
    while, a bit"""
)
NO_NAMES = _listed(
    """mud, legion, nobody, old-fashioned, old fashioned, cautious, romantic, superstitious, vain,
    a, an, the, on, in, at, not, so, very, too, back, later, when, if, crazy, tomorrow, tonight,
    now, old, lazy, whatever, what, anything, something, mad, stupid, sentimental, silly,
    cynical, paranoid, naive, hard, difficult, easy, common, rare, important, here, there,
    names, out, up, down, by, to, for, from, and, or, but, again, today, soon, any, my, your,
    his, her, their, our, it, that, this, also, well, unlucky, selfish, biased, picky, fine,
    good, great, sorry, sure, okay, ok, glad, happy, sad, tired, afraid, bored, hungry, ready,
    new, just, still, really, all, always, never, going, trying, looking, thinking, feeling,
    having, doing, pretty, home, alone, lost, busy, late, early, done, only, about, with, as,
    like, no, yes, i, we, you, he, she, they, who, how, where, why, monday, tuesday, wednesday,
    thursday, friday, saturday, sunday, english, irish, french, german, spanish, portuguese,
    italian, dutch, american, british, scottish, welsh, canadian, australian, brazilian, indian,
    chinese, japanese, russian, polish, swedish, danish, norwegian, finnish, greek, turkish,
    mexican, african, asian, european, catholic, christian, muslim, jewish, buddhist, hindu,
    jesus, god, ms, gay, bisexual, lesbian, trans, excited, stressed, worried, scared, confused,
    curious, joking, kidding, born, secret, known, nervous, awake, asleep, sick, ill, broke,
    free, vegan, vegetarian, married, single, divorced"""
)
NO_TASTES = _listed(
    """not, it, that, this, those, these, them, him, her, you, me, us, myself, everything, nothing,
    anything, something, everyone, everybody, people, how, what, when, where, who, why, your,
    his, their, its, our, if, whatever, whenever, one, ones, both, either, neither, all, being,
    so, too, very, there, here, as, to, more, less, most, such, another, mine, yours, because,
    about"""
)
NO_INFINITIVES = _listed(
    """say, admit, break, be, hear, see, look, watch, listen, know, think, believe, tell, ask,
    imagine, disappoint, order, go, have, come, get, interrupt, bother, disagree, point,
    complain, brag, do, leave, join, help"""
)
NO_MEALS = _listed(
    """before, after, much, another, at, in, out, that, this, it, there, with, lunch, dinner,
    breakfast, alone, enough, well, when, until, here, a, too, often, late, if, because, so,
    many, anything, something, everything, right, and, or, on, since, like, today, tonight,
    more, very, these, those, them, for, from, all, while, as, lot, properly, regularly,
    healthily, fast"""
)
PERSONS = _listed(
    """man, woman, guy, girl, boy, lady, gentleman, person, love, sweetheart, soulmate, best friend,
    friend, ex, neighbour, neighbor, colleague, boss, other half, better half, teammate"""
)
NO_SPOUSES = _listed(
    """job, career, company, game, machine, computer, cause, project, phone, bed, book, spreadsheet,
    couch, sofa, pizza, dream"""
)
PRAISE = _listed(
    """terrible, awful, horrible, bad, lousy, poor, mediocre, decent, good, great, better, worse,
    brilliant, amazing, excellent, fantastic, wonderful, fabulous, natural, born, hopeless, clumsy,
    keen, fast, slow, hard, real, bit, complete, total, big, slave, model"""
)
NOT_TOLERATED = _listed(
    """lactose, gluten, dairy, milk, cheese, fructose, alcohol, wheat, nuts, sugar, caffeine, soy,
    soya, eggs, egg, meat, onions, garlic, beans, yeast, spice, spices, food, chillies, chili,
    cream, wine, beer, pork, beef, fish, shellfish, sweeteners"""
)
NO_ALLERGIES = _listed(
    """meetings, questions, jokes, puns, advice, paperwork, spreadsheets, rules, authority, cardio,
    romance, housework, chores, politics, sport, sports, gossip, bureaucracy, optimism, happiness,
    love, feelings, talk, your, his, her, their, success, money, hypocrisy, alarm, alarms, clocks,
    emails, phone calls, weekdays, plans, change, truth, silence, weddings, mondays, work,
    bullshit, stupidity, people, you, fun, mornings, exercise, anything, nothing,
    it, that, this, him, her, them, commitment, drama, nonsense, liars, idiots, homework,
    everything, early, boredom, failure, effort, maths, math, responsibility"""
)
MONTHS = _listed(
    """january, february, march, april, may, june, july, august, september, october, november,
    december, jan, feb, mar, apr, jun, jul, aug, sept, sep, oct, nov, dec"""
)
NUMBERS = _listed(
    """one, two, three, four, five, six, seven, eight, nine, ten, many, several, both"""
)
SENSES = _listed("""smell, sound, noise, taste, feeling, feel, sight, scent, look, colour, color""")
THE_ONLY = _listed(
    """ocean, sea, seaside, sun, rain, snow, wind, beach, coast, mountains, forest, woods,
    countryside, outdoors, stars, moon, sky, night, dark, cold, heat, desert, city, piano,
    violin, guitar, cello, drums, theatre, theater, opera, cinema, winter, summer, spring,
    autumn, gym, news, library, past, future, rainforest, internet, holidays, weekend, weekends,
    dentist, silence, quiet, mornings, evenings, arts, circus, zoo, bus, train, subway,
    underground"""
)
NEEDS_AN_OBJECT = _listed(
    """seeing, making, having, being, sharing, getting, doing, watching, using, finding, giving,
    taking, trying, helping, putting, going, feeling, knowing, hearing, keeping, letting,
    bringing, showing, telling, looking, coming, working, thinking, entering, buying, wearing,
    spending, breaking"""
)
