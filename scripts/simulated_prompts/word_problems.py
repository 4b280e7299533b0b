"""Word problems: small stories that hide a calculation; more steps and unknowns make them harder."""

import operator
import random

from .wording import Graded, Prompt, Template, counted, graded, joined, level, listed, plural, with_articles

NAMES = listed("""
    Amara; Ben; Chloe; Dev; Elena; Farid; Grace; Hana; Ivan; Jonas; Keiko; Lina; Mateo; Nadia; Omar; Priya
    Rosa; Sami; Tomas; Yara; Bruno; Celia; Idris; Mina
""")
GOODS = listed("""
    notebook; pencil; apple; mug; candle; lemon; battery pack; poster; muffin; plant pot; keyring; ticket
    magnet; paint tube; bar of soap; light bulb; paperback; jar of honey; bicycle bell; phone case
""")
PACKED = listed("oranges; marbles; seedlings; tiles; lemons; leaflets; eggs; candles; cupcakes; stickers; bottles")
CONTAINERS = listed("box; crate; bag; tray; rack; basket; pallet")
TOWNS = listed("""
    Ashford Vale; Millbrook; Larkhill; Stonebridge; Eastmere; Fernley; Oakhaven; Port Linden; Redcliff
""")
VEHICLES = listed("train; bus; car; delivery van; coach; motorbike; truck")
LIQUIDS = listed("salt solution; fruit syrup; acid; antifreeze; sugar water; bleach solution; vinegar")
JOBS = listed("paint a fence; sort the post; mow the field; assemble the shelves; clean the hall; pick the apples")
PLACES = listed("garden; playground; courtyard; parking area; orchard; exhibition hall; terrace; allotment")
DISHES = listed("pancakes; flatbread; scones; waffles; dumplings; biscuits; fruit crumble; oat bars")
INGREDIENTS = listed("""
    g of flour; ml of milk; g of sugar; g of butter; g of oats; ml of water; g of raisins; g of yoghurt
""")
COLOURS = listed("red; blue; green; white; yellow; black; purple")
SMALL_THINGS = listed("marbles; counters; socks; buttons; beads; sweets")

PACKING = graded("""
    0.08: {name} has {exact} {things} and puts {each} into each {container}. How many {containers} are filled?
    0.18: {name} fills each {container} with {each} {things}. There are {total} {things} in all. How many
        {containers} are full, and how many {things} are left over?
    0.34: A warehouse holds {total} {things}. Each {container} takes {each} of them and a truck carries {load}
        {containers}. How many trips must the truck make?
    0.72: If {name} packs {each} {things} per {container}, the last {container} holds only {spare}. With
        {more} {things}
        per {container}, exactly two {containers} fewer are needed and all are full. Is that possible, and if
        so, what
        is the smallest number of {things}?
""")
JOURNEY = graded("""
    0.06: A {vehicle} covers {exact} km from {start} to {end} in {hours} hours. What is its average speed?
    0.15: A {vehicle} travels at {speed} km/h. How long does it need for the {distance} km from {start} to
        {end}?
    0.5: A {vehicle} goes from {start} to {middle}, {distance} km away, at {speed} km/h, waits {wait}
        minutes, and then
        continues {distance} km to {end} at {faster} km/h. What is the average speed of the whole journey?
    0.58: A {vehicle} leaves {start} at 8:00 at {speed} km/h and a {other} leaves {end} at 8:{wait} towards
        it at
        {faster} km/h. The towns are {apart} km apart. At what time do they meet?
    0.8: A {vehicle} leaves {start} at {speed} km/h. After {wait} minutes a {other} follows at {faster} km/h
        on the same
        road, but it stops for {pause} minutes in {middle} on the way. After how many kilometres does it
        catch up, and
        for which positions of {middle} does the stop make no difference?
""")
MIXTURE = graded("""
    0.16: How much pure concentrate is in {amount} litres of a {weak}% {liquid}?
    0.42: {name} mixes {amount} litres of {weak}% {liquid} with {more} litres of {strong}% {liquid}. What is
        the strength
        of the mixture?
    0.62: How many litres of {strong}% {liquid} must be added to {amount} litres of {weak}% {liquid} to obtain
        {target}% strength?
    0.9: A tank holds {large} litres of {weak}% {liquid}. {name} drains some of it, refills the tank with
        {strong}% {liquid}, and then does the same once more with the same volume. The tank is now at
        {target}%.
        How much was drained each time?
""")
AGES = graded("""
    0.06: {first} is {young} and {second} is {gap} years older. How old will {second} be in {years} years?
    0.32: The ages of {first} and {second} add up to {sum}. {first} is {gap} years younger. How old is each?
    0.4: {second} is {times} times as old as {first}. In {years} years {second} will be {later}. How old is
        {first} now?
    0.7: Together, {first}, {second} and {third} are {all} years old. {years} years ago {second} was twice as
        old as
        {first} was, and {third} is {gap} years older than {first}. Find all three ages.
""")
AREA = graded("""
    0.08: A/an {place} is {length} m long and {width} m wide. How much fence is needed to go all the way
        round?
    0.2: A/an {place} of {length} m by {width} m is to be paved at ${cost} per square metre. What does that
        cost?
    0.48: A path {path} m wide runs around the outside of a/an {place} that measures {length} m by {width} m.
        Gravel
        costs ${cost} per square metre. What does the path cost?
    0.72: With {fence} m of fence and one side along a straight wall, what is the largest rectangular {place}
        that can be
        enclosed, and what are its sides?
""")
CHANCE = graded("""
    0.14: {bag} One is taken at random. What is the probability that it is {second}?
    0.45: {bag} {drawn} are taken without putting any back. What is the chance that all of them are {first}?
    0.66: {bag} {drawn} are drawn at once. How likely is it that at least two colours appear?
    0.88: {bag} {name} keeps drawing without replacement until a {second} one appears. What is the expected
        number of
        draws?
""")
SAVINGS = graded("""
    0.18: {start} that pays {rate}% simple interest a year. How much interest is earned in {years} years?
    0.4: {start} at {rate}% compounded yearly. What is the balance after {years} years?
    0.7: {start} at {rate}% compounded monthly and adds ${monthly} at the end of every month. What is the
        balance after
        {years} years?
    0.8: {name} borrows ${amount} at {high}% a year and repays it in {months} equal monthly instalments. How
        large is each
        instalment, and how much interest is paid in total?
""")
SCHEDULE = graded("""
    0.05: A film starts at {hour}:15 and lasts {minutes} minutes. When does it end?
    0.25: {name} watches {films} episodes of {minutes} minutes each with a break of {first} minutes between
        them,
        starting at {hour}:40. When is the last one over?
    0.3: {name} runs every {second} days and {other} every {third} days. Both ran today. In how many days
        will both run
        again?
    0.6: Three lighthouses flash every {first}, {second} and {third} seconds. They flash together at
        {hour}:00 in the
        morning. How many more times do all three flash together before noon?
""")
ENDINGS = graded("""
    0.0: Explain the steps.; Show your reasoning before the answer.; Set up the equation first.
    0.04: Check the answer by a second method.; Point out any assumption you make.
    0.07: Answer with a number and nothing else.
""")


def told(rng: random.Random, stories: Graded, **values: object) -> Prompt:
    story, difficulty = rng.choice(stories)
    return story.format(**values), difficulty


def shopping(rng: random.Random) -> Prompt:
    name, kinds = rng.choice(NAMES), rng.randint(1, 4)
    numbers, prices = rng.sample(range(2, 13), kinds), [rng.randint(2, 60) / 4 for _ in range(kinds)]
    bought = [
        f"{counted(number, good)} at ${price:.2f} each"
        for number, good, price in zip(numbers, rng.sample(GOODS, kinds), prices, strict=True)
    ]
    banknotes = (sum(map(operator.mul, numbers, prices)) // 50 + 1) * 50
    text, difficulty = f"{name} buys {joined(bought)}.", 0.08 + 0.12 * (kinds - 1)
    if rng.random() < 0.5:
        text += f" There is a discount of {rng.choice([5, 10, 12, 15, 20, 30])}% on the whole bill."
        difficulty += 0.12
    if rng.random() < 0.5:
        return f"{text} How much change does {name} get from ${banknotes:.0f}?", difficulty + 0.06
    return f"{text} How much does {name} pay in total?", difficulty


def packing(rng: random.Random) -> Prompt:
    container, each, number = rng.choice(CONTAINERS), rng.randint(6, 36), rng.randint(3, 60)
    spare = rng.randint(2, each - 1)
    amounts = {"exact": each * number, "total": each * number + spare, "spare": spare, "more": each + 3}
    words = {"name": rng.choice(NAMES), "things": rng.choice(PACKED), "load": rng.randint(3, 9)}
    return told(rng, PACKING, container=container, containers=plural(container), each=each, **amounts, **words)


def journey(rng: random.Random) -> Prompt:
    vehicle, other = rng.sample(VEHICLES, 2)
    start, middle, end = rng.sample(TOWNS, 3)
    speed, hours, distance = rng.randint(32, 64), rng.randint(2, 7), rng.randint(12, 60) * 10
    route = {"vehicle": vehicle, "other": other, "start": start, "middle": middle, "end": end, "hours": hours}
    pace = {
        "speed": speed,
        "faster": speed + rng.randint(10, 50),
        "exact": speed * hours,
        "distance": distance,
    }
    waits = {"apart": distance + 200, "wait": rng.randint(10, 50), "pause": rng.randint(5, 20)}
    return told(rng, JOURNEY, **route, **pace, **waits)


def mixture(rng: random.Random) -> Prompt:
    weak, strong, amount = rng.randint(5, 20), rng.randint(45, 90), rng.randint(2, 40)
    shares = {"weak": weak, "strong": strong, "target": rng.randint(weak + 5, strong - 10)}
    volumes = {"amount": amount, "more": amount + 3, "large": amount * 5}
    return told(rng, MIXTURE, name=rng.choice(NAMES), liquid=rng.choice(LIQUIDS), **shares, **volumes)


def shared_work(rng: random.Random) -> Prompt:
    people = rng.randint(2, 4)
    names, times = rng.sample(NAMES, people), rng.sample(range(2, 15), people)
    alone = joined([f"{name} needs {time} hours" for name, time in zip(names, times, strict=True)])
    text, difficulty = f"To {rng.choice(JOBS)} alone, {alone}.", 0.15 + 0.13 * people
    if rng.random() < 0.5:
        return f"{text} How long do they need together?", difficulty
    text += f" They start together, but {names[0]} leaves after an hour. How long does the whole job take?"
    return text, difficulty + 0.18


def ages(rng: random.Random) -> Prompt:
    first, second, third = rng.sample(NAMES, 3)
    young, gap, years, times = rng.randint(8, 20), rng.randint(3, 30), rng.randint(2, 7), rng.randint(2, 4)
    older = 2 * (young - years) + years
    numbers = {"young": young, "gap": gap, "years": years, "times": times, "sum": 2 * young + gap}
    results = {"later": times * young + years, "all": young + older + young + gap}
    return told(rng, AGES, first=first, second=second, third=third, **numbers, **results)


def area(rng: random.Random) -> Prompt:
    width, length = rng.randint(3, 30), rng.randint(31, 80)
    sizes = {"width": width, "length": length, "fence": 2 * (length + width), "path": rng.randint(2, 4)}
    return told(rng, AREA, place=rng.choice(PLACES), cost=rng.randint(3, 45), **sizes)


def chance(rng: random.Random) -> Prompt:
    first, second, third = rng.sample(COLOURS, 3)
    many, few, some = rng.randint(6, 15), rng.randint(2, 8), rng.randint(2, 9)
    bag = f"A bag holds {many} {first}, {few} {second} and {some} {third} {rng.choice(SMALL_THINGS)}."
    drawn = rng.choice(["Two", "Three", "Four", "Five"])
    return told(rng, CHANCE, bag=bag, first=first, second=second, drawn=drawn, name=rng.choice(NAMES))


def savings(rng: random.Random) -> Prompt:
    name, amount, years = rng.choice(NAMES), rng.randint(3, 90) * 100, rng.randint(2, 15)
    rate = rng.choice([1.5, 2, 2.4, 3, 3.5, 4.2, 5])
    terms = {"rate": rate, "high": rate + 4, "monthly": rng.randint(3, 30) * 10, "months": years * 12}
    start = f"{name} puts ${amount} into an account"
    return told(rng, SAVINGS, start=start, name=name, amount=amount, years=years, **terms)


def recipe(rng: random.Random) -> Prompt:
    people, guests, needs = rng.randint(2, 6), rng.randint(7, 30), rng.sample(INGREDIENTS, rng.randint(1, 4))
    amounts = joined([f"{rng.randint(4, 120) * 5} {need}" for need in needs])
    asked = "How much is" if len(needs) == 1 else "How much of each is"
    text = f"A recipe of {rng.choice(DISHES)} for {people} people needs {amounts}."
    uneven = 0.08 if guests % people else 0.0
    return f"{text} {asked} needed for {guests} people?", 0.1 * len(needs) - 0.04 + uneven


def schedule(rng: random.Random) -> Prompt:
    name, other = rng.sample(NAMES, 2)
    first, second, third = sorted(rng.sample(range(3, 25), 3))
    times = {"hour": rng.randint(6, 11), "minutes": rng.randint(35, 95), "films": rng.randint(2, 6)}
    return told(rng, SCHEDULE, name=name, other=other, first=first, second=second, third=third, **times)


TEMPLATES: list[Template] = [
    *(shopping, packing, journey, mixture, shared_work, ages, area, chance, savings, recipe, schedule)
]


def word_problems(rng: random.Random) -> Prompt:
    text, difficulty = rng.choice(TEMPLATES)(rng)
    ending, extra = rng.choice(ENDINGS) if rng.random() < 0.35 else ("", 0.0)
    return with_articles(f"{text} {ending}".strip()), level(difficulty + extra)
