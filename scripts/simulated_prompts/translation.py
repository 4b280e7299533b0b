"""Translation prompts: rarer languages, longer texts and stricter wishes about style make them harder."""

import random

from .wording import Graded, Prompt, filled, graded

TEMPLATES = graded("""
    0.0: How do you say "{phrase}" in {language}?
    0.02: Translate into {language}: "{sentence}"
    0.05: Translate this into {language}: "{sentence} {sentence2}" {wish}
    0.12: Please translate this short message from English into {language}.|{wish}|"{sentence} {sentence2}
        {sentence3}"
    0.02: Translate into English from {foreign} {home_wish}
    0.12: A colleague sent me this note in {foreign} What does it say in English? {home_wish}
    0.1: I want to write in {language}: "{sentence}" Give a formal and an informal version and explain the
        difference.
    0.12: What is the closest {language} equivalent of the English idiom "{idiom}"? Give a literal
        back-translation.
    0.2: Translate this contract clause into {language}: "{clause}" {wish}
    0.18: Translate these safety instructions into {language}, as numbered steps:|1. {step}|2. {step2}|3.
        {step3}
    0.04: Translate this menu into {language}:|- {dish}|- {dish2}|- {dish3}|- {dish4}
    0.08: Translate the button labels of an app into {language}, at most {10-18} characters each: {label},
        {label2}, {label3}.
    0.36: Translate these two lines of verse into {language} and keep a rhyme: "{verse}"
    0.28: Translate this scene into {language} so that it sounds like natural speech:|A: {question}|B:
        {sentence}|A: {reply}
    0.22: I speak to a {person} in {language}. Translate, using the right form of address: "{question}
        {sentence}"
    0.08: Which translation of "{sentence}" would a native speaker of {language} use in everyday life? Offer
        two options.
    0.1: Give the {language} words for {word}, {word2}, {word3} and {word4}, with gender or class if the
        language has them.
""")
SLOTS: dict[str, Graded] = {
    "language": graded("""
        0.02: Spanish; French; German; Italian; Portuguese
        0.1: Dutch; Swedish; Polish; Russian; Japanese; Mandarin Chinese; Korean; Turkish
        0.22: Greek; Finnish; Hungarian; Czech; Vietnamese; Thai; Hebrew; Hindi; Ukrainian; Arabic
        0.34: Swahili; Icelandic; Basque; Welsh; Estonian; Tagalog; Bengali; Georgian; Maltese
        0.46: Quechua; Yoruba; Faroese; Maori; Tibetan; Breton; Latin; Sardinian; Guarani; Inuktitut
    """),
    "phrase": graded("""
        0.0: Good morning; Thank you very much; Where is the station?; See you tomorrow; I would like a
            coffee, please
        0.0: Happy birthday!; How much does it cost?; My name is Lena; I do not understand; The bill, please;
            Get well soon
        0.04: I have been waiting for ages; It depends on the weather; Never mind, it happens; Mind the step;
            It was worth it
    """),
    "sentence": graded("""
        0.0: The shop opens at nine and closes at six.; We are meeting my sister at the station.; It has been
            raining all week.
        0.0: I left my keys on the kitchen table.; The children are playing in the garden.; The soup needs a
            little more salt.
        0.03: If the bus is late again, we shall miss the beginning of the concert.; She had hardly sat down
            when the phone rang.
        0.03: The parcel you ordered last Tuesday is waiting at the counter.; Nobody told us that the meeting
            had been moved.
        0.03: Could you let me know by Friday whether the blue room is free?; He would have called if he had
            found the number.
        0.08: Whatever the committee decides, the old bridge will have to be closed sooner or later.
        0.08: Having grown up by the sea, she found the silence of the mountains almost unbearable.
        0.08: The more he tried to explain himself, the less anyone seemed inclined to believe him.
    """),
    "foreign": graded("""
        0.0: Spanish: "Mañana vamos a visitar a mis abuelos en el pueblo."; Spanish: "¿A qué hora sale el
            próximo tren?"
        0.0: French: "Il fait trop froid pour manger dehors ce soir."; French: "Je cherche une chambre pour
            deux personnes."
        0.02: German: "Der Zug hat heute leider zwanzig Minuten Verspätung."; Italian: "Il mercato è aperto
            ogni sabato mattina."
        0.05: Portuguese: "A loja fecha mais cedo aos domingos."; Dutch: "De vergadering is verplaatst naar
            volgende week."
        0.1: Swedish: "Vi ses utanför biblioteket klockan tre."; Polish: "Proszę zostawić klucz w recepcji."
        0.16: Turkish: "Yarın sabah erken kalkmam gerekiyor."; Czech: "Dnes večer bude pršet, vezmi si
            deštník."
        0.22: Finnish: "Kirjasto on kiinni maanantaina."; Hungarian: "A könyv az asztalon van."; Greek: "Το
            νερό είναι κρύο."
        0.4: Welsh: "Mae hi'n bwrw glaw heddiw."; Icelandic: "Ég tala ekki íslensku."; Basque: "Eskerrik
            asko, bihar arte."
        0.45: Latin: "Littera scripta manet."; Swahili: "Chakula kiko tayari mezani."; Maori: "Kei te pehea
            koe?"
    """),
    "home_wish": graded("""
        0.0: Keep it simple.; One sentence is enough.; A rough version is fine.; Plain English, please.
        0.08: Explain the grammar of the verb.; Add a note on the tone of the original.; Give it word by word
            first.
        0.2: Give a literal and an idiomatic version.; Explain every ending and the word order.; Point out
            what is lost in English.
        0.35: Render it as a line of a {register}, and explain each choice.; Then rewrite the original as a
            {register}.
    """),
    "register": graded("""
        0.0: newspaper headline; fairy tale; Victorian letter; radio advert; court judgment; folk song; text
            message
        0.0: weather report; detective novel; diplomatic note; nursery rhyme
    """),
    "wish": graded("""
        0.0: Keep the tone friendly.; Use the polite form.; Simple words, please.; It is for a notice on a
            door.
        0.08: Do not translate word by word.; It should sound old-fashioned.; Use the vocabulary of a
            {register}.
        0.16: Keep the sentence lengths and the order of ideas.; Avoid all loan words.; Add a transliteration
            and a gloss.
        0.26: Give three versions from most literal to freest and justify the differences.; Use a regional
            dialect and mark it.
    """),
    "idiom": graded("""
        0.05: to kill two birds with one stone; a piece of cake; once in a blue moon; to break the ice;
            better late than never
        0.15: to beat around the bush; to let the cat out of the bag; a storm in a teacup; to bite the bullet
        0.25: to damn with faint praise; to gild the lily; neither here nor there; the thin end of the wedge
    """),
    "clause": graded("""
        0.0: The tenant shall return the keys no later than noon on the final day of the term.
        0.08: Either party may terminate this agreement upon thirty days' written notice, save in the case of
            material breach.
        0.16: Nothing herein shall be construed as a waiver of any right which has accrued prior to such
            termination.
        0.2: The indemnity survives assignment, notwithstanding any provision to the contrary in the
            schedules hereto.
    """),
    "step": graded("""
        0.0: Switch off the machine.; Wear gloves.; Keep away from children.; Wait five minutes.; Close the
            lid.; Use dry cloths only.
        0.02: Do not bypass the emergency stop.; Release the pressure before opening the valve.; Earth the
            housing.
        0.04: Never exceed the rated load.; Lock out the feed before clearing a jam.; Check the seal for
            hairline cracks.
    """),
    "dish": graded("""
        0.0: grilled fish with lemon; tomato soup; apple cake with cream; roast potatoes; green salad; fresh
            bread with butter
        0.03: slow-braised lamb shoulder; pickled beetroot; poached pear in spiced wine; smoked trout mousse;
            wild garlic dumplings
    """),
    "label": graded("""
        0.0: Save; Cancel; Sign in; Settings; Next; Delete; Share; Search; Back; Help
        0.03: Undo last change; Mark as unread; Restore purchases; Log out everywhere; Snooze for an hour
    """),
    "verse": graded("""
        0.0: The lamp is low, the night is long, / and someone hums a sailor's song.
        0.0: I kept a pebble from the shore, / it does not whisper any more.
        0.0: The orchard sleeps beneath the snow, / but roots remember how to grow.
        0.0: A sparrow landed on my sill / and for a breath the world stood still.
        0.05: The clock forgot its own refrain, / and all the gutters drank the rain.
        0.05: What winter wrote upon the glass / was read by none, and came to pass.
    """),
    "question": graded("""
        0.0: Have you heard?; Where were you yesterday?; Are you coming with us?; Did you find it?; Do you
            have a minute?
        0.0: Would you mind waiting?; What would you do in my place?; Is anything the matter?
    """),
    "reply": graded("""
        0.0: That is just like you.; Well, I never!; No way.; Fair enough.; You don't say.; Suit yourself.; I
            thought as much.
    """),
    "person": graded("""
        0.0: small child; close friend; neighbour; colleague
        0.06: judge; grandmother; professor; new customer; village elder; border guard
    """),
    "word": graded("""
        0.0: bread; window; friend; river; shoe; Monday; horse; key; market; bridge; spoon; winter
        0.03: hedgehog; thimble; drizzle; stepdaughter; scaffolding; yeast; heron; rust
    """),
}


def translation(rng: random.Random) -> Prompt:
    return filled(rng, TEMPLATES, SLOTS)
