"""General knowledge prompts: facts and explanations from many fields; rarer subjects make them harder."""

import random

from .wording import Graded, Prompt, filled, graded

TEMPLATES = graded("""
    0.0: What is the capital of {country}? {capital_form}
    0.05: Which countries are the nearest neighbours of {country}, and which languages do its people speak?
        {brief}
    0.08: How did {country} get its present borders? {form}
    0.02: What is the currency of {country}, and what is the country best known for? {brief}
    0.03: How does {machine} work? {form}
    0.03: Why {why}? {form}
    0.02: What is the difference between {pair}? {form}
    0.06: What led to {event}, and what were its consequences? {form}
    0.02: Roughly when did {event} happen, and where? {brief}
    0.05: Where does the word "{word}" come from? {form}
    0.0: What do {animal} eat, and where do they live? {form}
    0.12: How have {animal} adapted to their surroundings? {form}
    0.02: What are the basic rules of {game}? {form}
    0.04: How is {food} made, and where does it come from? {form}
    0.06: What is typical of {art}? {form}
    0.03: What is known about {space}? {form}
    0.04: True or false: {claim}? {claim_form}
    0.08: Put these in order of {order} {brief}
    0.1: Which came first, {event} or {event2}, and by how many years?
    0.14: Name {3-6} things that {machine} and {machine2} have in common. {form}
""")
SLOTS: dict[str, Graded] = {
    "country": graded("""
        0.0: France; Japan; Egypt; Canada; Italy; Brazil; Spain; India; Germany; Mexico
        0.1: Portugal; Norway; Kenya; Peru; Vietnam; Morocco; Hungary; New Zealand; Chile; Jordan
        0.25: Slovenia; Laos; Uruguay; Botswana; Estonia; Bolivia; Oman; Senegal; Georgia; Paraguay
        0.4: Burkina Faso; Kyrgyzstan; Suriname; Bhutan; Malawi; Tajikistan; Guinea-Bissau; Lesotho; Brunei
        0.5: Eswatini; Djibouti; Sao Tome and Principe; Timor-Leste; the Comoros; Equatorial Guinea
    """),
    "machine": graded("""
        0.0: a bicycle; a fridge; a light bulb; a zip fastener; a kettle; a lever; a thermometer; a compass
        0.12: a microwave oven; a steam engine; a piano; a hot-air balloon; a barcode scanner; a canal lock;
            a touch screen
        0.26: a mechanical watch; a jet engine; a fuel cell; a seismograph; a heat pump; a differential gear;
            a hologram
        0.42: an atomic clock; a tokamak; a mass spectrometer; a klystron; a ring laser gyroscope; a Stirling
            engine
    """),
    "why": graded("""
        0.0: is the sky blue; does ice float; do leaves turn red in autumn; do we have seasons; do onions
            make us cry
        0.0: is the sea salty; do cats purr; does bread rise; do we yawn; does thunder follow lightning
        0.14: are there two tides a day; do stars twinkle; is glass transparent; do mirrors swap left and
            right; is the Moon moving away
        0.14: do old maps look so different; do clocks go clockwise; are most deserts near the tropics; do
            languages die out
        0.3: is the night sky dark; does hot water sometimes freeze faster; do rivers meander; is Venus
            hotter than Mercury
        0.45: does the Earth's magnetic field flip; is there more matter than antimatter; do some metals
            superconduct
    """),
    "pair": graded("""
        0.0: a frog and a toad; weather and climate; a butterfly and a moth; a violin and a cello; jam and
            marmalade
        0.0: a planet and a star; an alligator and a crocodile; stalagmites and stalactites; an island and a
            peninsula
        0.14: a meteor and a meteorite; Baroque and Renaissance art; a fjord and an estuary; a comet and an
            asteroid
        0.28: a monarchy and a principality; lichen and moss; a sonata and a symphony; igneous and
            metamorphic rock
        0.42: a hadron and a lepton; an ombudsman and a procurator; isostasy and eustasy; an ideogram and a
            logogram
    """),
    "event": graded("""
        0.0: the French Revolution; the first Moon landing; the fall of the Berlin Wall; the First World War;
            the Black Death
        0.1: the invention of printing with movable type; the opening of the Suez Canal; the Great Fire of
            London; the Californian gold rush
        0.22: the Peace of Westphalia; the Meiji Restoration; the Tunguska explosion; the founding of the
            Hanseatic League; the Irish famine
        0.36: the War of the Spanish Succession; the Taiping Rebellion; the Council of Nicaea; the
            Defenestration of Prague
        0.48: the War of the Pacific; the Sicilian Vespers; the Onin War; the Treaty of Tordesillas; the
            Fronde
    """),
    "word": graded("""
        0.0: breakfast; holiday; goodbye; sandwich; chocolate; robot; alphabet
        0.14: salary; quarantine; ketchup; algebra; muscle; nice; window; disaster
        0.3: shibboleth; serendipity; assassin; juggernaut; tawdry; sabotage; clue
        0.45: petrichor; borborygmus; mondegreen; sesquipedalian; ultracrepidarian; gongoozler
    """),
    "animal": graded("""
        0.0: penguins; elephants; owls; bees; foxes; dolphins; giraffes; squirrels
        0.12: platypuses; hummingbirds; meerkats; octopuses; storks; chameleons; manatees
        0.28: pangolins; axolotls; tapirs; naked mole-rats; cassowaries; lampreys; okapis
        0.42: tardigrades; aye-ayes; saigas; hoatzins; olms; solenodons; vaquitas
    """),
    "game": graded("""
        0.0: chess; football; tennis; dominoes; basketball; draughts; hide-and-seek
        0.14: cricket; curling; backgammon; rugby; bridge; fencing; go
        0.32: pétanque; shogi; mahjong; sepak takraw; kabaddi; hurling; cribbage
        0.48: tafl; pesäpallo; buzkashi; tablut; chess boxing; sipa; bandy
    """),
    "food": graded("""
        0.0: cheese; bread; honey; yoghurt; chocolate; butter; pasta
        0.12: soy sauce; vinegar; sauerkraut; tofu; marzipan; sourdough; couscous
        0.28: miso; kefir; injera; mozzarella; Worcestershire sauce; halva; saffron
        0.44: garum; surströmming; tempeh; hákarl; kumis; nixtamal; casu marzu
    """),
    "art": graded("""
        0.0: impressionist painting; jazz; Gothic cathedrals; fairy tales; ballet; pop art
        0.16: Baroque music; haiku; Art Nouveau; cubism; flamenco; stained glass; opera buffa
        0.32: Mughal miniature painting; Bauhaus design; Noh theatre; twelve-tone music; Brutalist
            architecture; gamelan music
        0.46: Mozarabic chant; suprematism; Cosmatesque floors; ukiyo-e; the nouveau roman; Isabelline
            architecture
    """),
    "space": graded("""
        0.0: the rings of Saturn; the surface of Mars; the Moon; the Milky Way; the Sun's life span
        0.16: the moons of Jupiter; black holes; the Oort cloud; neutron stars; solar flares; dwarf planets
        0.38: magnetars; the Kuiper cliff; fast radio bursts; the Great Attractor; Trojan asteroids;
            Population III stars
    """),
    "claim": graded("""
        0.0: bats are blind; the Sun is a star; spiders are insects; gold is heavier than water; whales are
            fish
        0.16: the Great Wall can be seen from the Moon with bare eyes; bananas are berries; glass is a slow
            liquid
        0.16: Russia has more time zones than any other country; the Sahara is the largest desert; tomatoes
            come from the Americas
        0.34: a day on Venus is longer than its year; the shortest war lasted under an hour; teaching at
            Oxford is older than the Aztec empire
        0.48: Reno lies further west than Los Angeles; the pH scale has no lower limit; wombats and koalas
            share an ancestor
    """),
    "order": graded("""
        0.0: size: Mars, Jupiter, Earth, the Moon.; height: a giraffe, an oak tree, a person, a church tower.
        0.12: area: Canada, Brazil, Australia, India.; invention: telephone, printing press, aeroplane, steam
            engine.
        0.3: density: copper, lead, aluminium, mercury.; length: the Danube, the Rhine, the Volga, the Loire.
        0.46: age: the Hittite, Aksumite, Khmer and Songhai empires.; melting point: tin, gallium, tungsten,
            zinc, silver.
    """),
    "brief": graded("""
        0.0: Keep it short.; Just the essentials.; One sentence is enough.
        0.05: Add one surprising detail.; It is for a quiz night.; Say how sure you are.
        0.15: Give figures as well.; Say which sources one could check.
    """),
    "capital_form": graded("""
        0.0: Just the name.; One word is enough.; It is for a crossword.
        0.12: Which river or coast does it lie on?; Roughly how many people live there?
        0.22: Since when has it been the capital?; Which city is larger, if any, and why is that one not the
            capital?
    """),
    "claim_form": graded("""
        0.0: Answer in one word.; Give the reason.; Explain briefly.
        0.12: Say where the idea comes from.; Name the exceptions, if there are any.
        0.24: Give the best argument on either side before you settle it.
    """),
    "form": graded("""
        0.0: Keep it short.; One paragraph, please.; Explain it to a child.; Just the essentials.; I am
            simply curious.
        0.05: Begin with the main point.; Add one surprising detail.; Three bullet points, please.; It is for
            a
            quiz night.
        0.2: Mention a common misunderstanding and where it comes from.; Say which sources one could check.;
            Give figures where you can.
        0.32: Point out what experts still disagree about.; Compare it with a lesser-known counterpart.
    """),
}


def general_knowledge(rng: random.Random) -> Prompt:
    return filled(rng, TEMPLATES, SLOTS)
