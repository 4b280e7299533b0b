"""Creative writing prompts: forms, settings and rules of play; tighter rules make them harder."""

import random

from .wording import Graded, Prompt, filled, graded

TEMPLATES = graded("""
    0.0: Write {form} about {subject}.
    0.03: Write {form} about {subject}. {rule}
    0.06: I would like {form} for {occasion}. It should mention {subject}. {rule}
    0.1: Write a short story set in {place} in which {event}. {rule}
    0.1: Write a dialogue between {who} and {who2}. They {conflict}. {rule}
    0.06: Continue this story in one paragraph: "{opening}" {rule}
    0.08: Write a monologue spoken by {who} while {event}. {rule}
    0.08: Write lyrics for {music} song about {subject}, with two verses and a chorus. {rule}
    0.04: Make up a slogan and a three-sentence advert for {product}. {rule}
    0.1: Invent a folk tale that explains why {why}. {rule}
    0.06: Describe {place} through {sense}. {rule}
    0.1: Write a letter from {who} to {who2} about {subject}. {rule}
    0.02: Tell a bedtime story for a/an {3-9}-year-old about {who} and {subject}. {rule}
    0.04: Give me {4-9} possible first lines of {genre} novel about {subject}. {line_rule}
    0.14: Write the last page of {genre} novel that ends in {place}, just after {event}. {rule}
    0.22: Tell the same small event, "{event}", first as {genre} story and then as {form}. {rule}
    0.3: Plan {genre} novel in ten chapters around {who} and {who2}, then write the opening scene in {place}.
        {rule} {rule2}
""")
SLOTS: dict[str, Graded] = {
    "form": graded("""
        0.0: a four-line rhyme; a haiku; a short poem; a greeting-card verse; a riddle; a toast
        0.08: a limerick; an acrostic; a free-verse poem; a fable with a moral; a diary entry; a tall tale
        0.2: a ballad in six stanzas; a sonnet with a proper turn; a prose poem; a dramatic monologue in
            blank verse
        0.34: a villanelle; a sestina; a pantoum; a crown of three linked sonnets; a ghazal with a fixed
            refrain
    """),
    "subject": graded("""
        0.0: a lost umbrella; the first snow; a sleepy cat; autumn leaves; an old bicycle; a birthday cake;
            the sea at night
        0.0: a broken clock; a grandmother's kitchen; a paper boat; a stubborn donkey; a night train; the
            smell of rain
        0.04: a map with one place missing; the last telephone box; a lighthouse that moved inland; a letter
            that came too late
        0.08: the grammar of silence; an unfinished staircase; the weight of a promise; a city that forgets
            its own name
    """),
    "occasion": graded("""
        0.0: a wedding; a farewell party; a school play; a retirement; a housewarming; a village fair; a book
            club
    """),
    "place": graded("""
        0.0: a small harbour town; a railway station; an empty school; a mountain hut; a busy market; a
            greenhouse; a laundrette
        0.03: a drowned library; a space station kitchen; a desert observatory; an underground orchard; a
            theatre after the fire
    """),
    "event": graded("""
        0.0: a stranger returns a wallet; the power goes out; a dog finds a key; two neighbours meet; the
            rain does not stop
        0.04: a bell rings that no one has touched; every shadow points the wrong way; the baker stops
            speaking
        0.08: the narrator slowly understands that nobody else remembers yesterday; time runs backwards for
            one guest only
    """),
    "who": graded("""
        0.0: a lonely baker; a young sailor; a talking fox; a retired teacher; a shy giant; a taxi driver; a
            clumsy dragon
        0.03: a clockmaker who cannot sleep; a ghost with good manners; a robot gardener; a queen in
            disguise; a beekeeper
        0.06: a forger who only tells the truth; a translator between birds and men; the moon's accountant
    """),
    "conflict": graded("""
        0.0: both want the last seat on the bus; are stuck in a lift; share a park bench; disagree about a
            recipe
        0.06: each hide the same secret; speak only in questions; have met before, though only one knows it
        0.12: never mention what they are really arguing about; say the opposite of what they mean
    """),
    "opening": graded("""
        0.0: The door was open when I came home.; Nobody had used the swing for years.; The soup tasted of
            something blue.
        0.0: On the third day the boat began to sing.; My aunt kept the weather in a biscuit tin.; The letter
            had no stamp.
        0.04: By the time the clocks agreed, it was already Thursday again.; We buried the piano in the rain.
    """),
    "music": graded("""
        0.0: a country; a lullaby-like; a cheerful pop; a sea-shanty; a slow blues; a folk
        0.06: a gospel; a cabaret; a punk; a bossa nova; a rap; a madrigal-style
    """),
    "product": graded("""
        0.0: socks that never get lost; a silent alarm clock; an umbrella for two; a teapot that tells jokes;
            edible chalk
        0.05: a pillow that edits dreams; bottled Sunday afternoons; a compass that points to home;
            second-hand echoes
    """),
    "why": graded("""
        0.0: the moon changes its shape; cats land on their feet; the sea is salty; owls are awake at night;
            leaves fall
        0.05: echoes answer late; bridges hum in the wind; the eldest river runs uphill in spring; salt
            remembers fire
    """),
    "sense": graded("""
        0.0: the eyes of a child; sounds and smells only; the weather
        0.06: the memories of its oldest visitor; touch alone; objects that people left behind
        0.12: a list of things that are absent; a single long sentence
    """),
    "genre": graded("""
        0.0: a detective; a fantasy; an adventure; a romantic; a ghost
        0.05: a historical; a science-fiction; a satirical; a gothic; a comic
        0.1: an absurdist; a magical-realist; an epistolary
    """),
    "line_rule": graded("""
        0.0: Keep each under 15 words.; Make them funny.; Make each a little stranger than the last.
        0.15: None may name a person.; Each must hold a small mystery.; Use no verb of seeing.
        0.35: Each must have a different narrator, recognisable by voice alone.
    """),
    "rule": graded("""
        0.0: Keep it under 150 words.; Make it funny.; Make it a little sad.; Give it a happy ending.; Use
            simple language.
        0.1: Write in the present tense.; End with a question.; Use the words "copper", "hinge" and
            "marmalade".
        0.1: Tell it in the second person.; No adjectives at all.; Include exactly one lie.; Make it rhyme
            throughout.
        0.3: Every sentence must have exactly seven words.; Never name the feeling that drives it.; Tell it
            backwards in time.
        0.3: Each line or paragraph must begin with the last word of the one before.; Use an unreliable
            narrator and
            two clues.
        0.5: Do not use the letter "e" anywhere.; Write it in iambic pentameter with a hidden acrostic.
        0.5: Use only words of one syllable, and let each line be one word longer than the last.
    """),
}


def creative_writing(rng: random.Random) -> Prompt:
    return filled(rng, TEMPLATES, SLOTS)
