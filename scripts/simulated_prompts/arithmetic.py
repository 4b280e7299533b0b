"""Arithmetic prompts: bare calculations whose difficulty grows with digits, terms and operations."""

import random
from fractions import Fraction
from math import log10

from .wording import Prompt, Template, counted, graded, joined, level, listed

ENDINGS = graded("""
    0.0: Show each step.; Please check the result once more.; Write the working line by line.
    0.03: Do it by hand and explain the method you used.; Mention any shortcut that makes it quicker.
    0.06: Give only the final number.; Answer in one line without any working.
""")
CONVERSIONS = graded("""
    0.05: kilometres to metres; hours to minutes; kilograms to grams; metres to centimetres
    0.2: miles to kilometres; pounds to kilograms; inches to centimetres; litres to millilitres
    0.3: km/h to m/s; degrees Fahrenheit to degrees Celsius; hectares to square metres; US gallons to litres
    0.45: cubic feet to litres; nautical miles per hour to metres per second; pounds per square inch to
        pascals
    0.6: miles per gallon to litres per 100 km; grams per cubic centimetre to pounds per cubic foot
""")
SUM_WORDINGS = listed("What is {}?; Calculate {}.; Work out {} for me.; Find the value of {}.; {} = ?")


def digits(rng: random.Random, count: int) -> int:
    return rng.randint(max(2, 10 ** (count - 1)), 10**count - 1)


def addition(rng: random.Random) -> Prompt:
    size, terms = rng.randint(1, 6), rng.randint(2, 5)
    numbers = [digits(rng, size) for _ in range(terms)]
    wording = rng.choice([*SUM_WORDINGS, "Add these numbers up: {}"])
    shown = joined(numbers) + "." if wording.startswith("Add") else " + ".join(map(str, numbers))
    return wording.format(shown), 0.06 * size + 0.06 * (terms - 2)


def subtraction(rng: random.Random) -> Prompt:
    size, places = rng.randint(2, 7), rng.choice([0, 0, 0, 1, 2, 3])
    smaller, larger = sorted(digits(rng, size) / 10**places for _ in range(2))
    left, right = f"{larger:.{places}f}", f"{smaller:.{places}f}"
    wordings = [
        f"Subtract {right} from {left}.",
        f"What is {left} - {right}?",
        f"How much is {left} minus {right}?",
    ]
    return rng.choice(wordings), 0.05 * size + 0.06 * places - 0.03


def multiplication(rng: random.Random) -> Prompt:
    first, second = rng.randint(1, 5), rng.randint(1, 4)
    left, right = digits(rng, first), digits(rng, second)
    wordings = [
        f"Multiply {left} by {right}.",
        f"What is {left} times {right}?",
        f"Compute {left} x {right}.",
    ]
    return rng.choice(wordings), 0.05 + 0.1 * (first + second - 2)


def division(rng: random.Random) -> Prompt:
    small, large = rng.randint(1, 3), rng.randint(1, 4)
    divisor, quotient = digits(rng, small), digits(rng, large)
    base = 0.06 + 0.1 * (small - 1) + 0.08 * (large - 1)
    number = divisor * quotient + rng.randint(1, divisor - 1)
    places = rng.randint(2, 5)
    return rng.choice(
        [
            (f"What is {divisor * quotient} divided by {divisor}?", base),
            (f"Divide {number} by {divisor} and state the quotient and the remainder.", base + 0.08),
            (
                f"Use long division to work out {number} / {divisor} to {places} decimal places.",
                base + 0.05 * places,
            ),
        ]
    )


def brackets(rng: random.Random) -> Prompt:
    size, operands = rng.randint(1, 2), rng.randint(3, 8)
    text = str(digits(rng, size))
    for left in reversed(range(operands - 1)):
        text = f"{text} {rng.choice('+-*')} {digits(rng, size)}"
        if left and rng.random() < 0.45:
            text = f"({text})"
    wordings = [
        "Evaluate {}, respecting the order of operations.",
        "Simplify the expression {}.",
        "What does {} equal?",
    ]
    return rng.choice(wordings).format(text), 0.1 * (operands - 2) + 0.14 * size


def percentage(rng: random.Random) -> Prompt:
    steps = rng.randint(1, 5)
    start = rng.choice([rng.randint(2, 40) * 10, rng.randint(100, 9999)])
    rates = [rng.choice([5, 10, 20, 25, 50]) if steps == 1 else rng.randint(3, 48) for _ in range(steps)]
    if steps == 1:
        wordings = [
            f"What is {rates[0]}% of {start}?",
            f"Reduce {start} by {rates[0]}%.",
            f"Raise {start} by {rates[0]}%.",
        ]
        return rng.choice(wordings), 0.08 if start % 10 == 0 else 0.2
    moves = [f"{rng.choice(['increased', 'reduced'])} by {rate}%" for rate in rates]
    text = f"The number {start} is {moves[0]}, then {', then '.join(moves[1:])}."
    return f"{text} What is the result to two decimals?", 0.14 * steps + 0.04


def fractions(rng: random.Random) -> Prompt:
    terms, largest = rng.randint(2, 5), rng.choice([6, 12, 30])
    bottoms = [rng.randint(2, largest) for _ in range(terms)]
    values = [Fraction(rng.randint(1, bottom - 1), bottom) for bottom in bottoms]
    text = " ".join(f"{rng.choice(['+', '-'])} {value}" for value in values)[2:]
    wordings = [
        "Compute {} and give the answer in lowest terms.",
        "Write {} as a single fraction.",
        "What is {} as a fraction?",
    ]
    return rng.choice(wordings).format(text), 0.15 * (terms - 1) + 0.01 * largest


def remainders(rng: random.Random) -> Prompt:
    base, power, modulus = rng.randint(2, 40), rng.randint(5, 10 ** rng.randint(1, 4)), rng.randint(5, 250)
    wordings = [
        f"What is the remainder when {base}^{power} is divided by {modulus}?",
        f"Find {base}^{power} mod {modulus}.",
        f"Compute {base} to the power {power}, modulo {modulus}.",
    ]
    return rng.choice(wordings), 0.45 + 0.08 * log10(power) + 0.08 * log10(modulus)


def divisors(rng: random.Random) -> Prompt:
    size = rng.randint(2, 6)
    first, second = digits(rng, size), digits(rng, size)
    asked = rng.choice(["greatest common divisor", "least common multiple"])
    return rng.choice(
        [
            (f"Find the {asked} of {first} and {second}.", 0.12 * size),
            (f"Write {first} as a product of prime numbers.", 0.14 * size),
            (f"Is {first} a prime number? If not, name its smallest divisor.", 0.13 * size),
        ]
    )


def number_bases(rng: random.Random) -> Prompt:
    size = rng.randint(1, 6)
    number = digits(rng, size)
    base, extra = rng.choice(
        [("binary", 0.0), ("hexadecimal", 0.06), ("octal", 0.08), ("base 7", 0.15), ("base 13", 0.2)]
    )
    if rng.random() < 0.5:
        return f"Convert the decimal number {number} to {base}.", 0.1 * size + extra
    return f"The binary number {number:b} is what in decimal?", 0.1 * size


def averages(rng: random.Random) -> Prompt:
    count, size = rng.randint(3, 12), rng.randint(1, 3)
    numbers = joined([digits(rng, size) for _ in range(count)])
    asked, extra = rng.choice(
        [("mean", 0.0), ("median", 0.0), ("mean and the median", 0.1), ("standard deviation", 0.35)]
    )
    return f"Find the {asked} of these numbers: {numbers}.", 0.03 * count + 0.07 * size + extra


def roots(rng: random.Random) -> Prompt:
    number, exact, places = digits(rng, rng.randint(2, 5)), rng.randint(4, 30), rng.randint(1, 5)
    to_places = f"to {counted(places, 'decimal place')}"
    return rng.choice(
        [
            (f"What is the square root of {exact**2}?", 0.08 + 0.006 * exact),
            (f"Estimate the square root of {number} {to_places}.", 0.3 + 0.09 * places),
            (f"What is the cube root of {number} {to_places}?", 0.4 + 0.09 * places),
            (f"Compute the natural logarithm of {number} {to_places}.", 0.45 + 0.09 * places),
        ]
    )


def series(rng: random.Random) -> Prompt:
    start, step, terms, few = rng.randint(1, 30), rng.randint(2, 12), rng.randint(5, 400), rng.randint(4, 12)
    sequence = f"{start}, {start + step}, {start + 2 * step}, ..."
    ratio = f"A geometric sequence starts at {start} with ratio {step}."
    return rng.choice(
        [
            (f"Add up all whole numbers from {start} to {start + terms}.", 0.15 + 0.06 * log10(terms)),
            (f"What is the sum of the first {terms} terms of {sequence}?", 0.3 + 0.08 * log10(terms)),
            (f"{ratio} What is the sum of its first {few} terms?", 0.3 + 0.04 * few),
        ]
    )


def conversion(rng: random.Random) -> Prompt:
    units, grade = rng.choice(CONVERSIONS)
    source, target = units.split(" to ")
    places = rng.choice([0, 0, 1, 2])
    amount = f"{digits(rng, rng.randint(2, 4)) / 10**places:.{places}f}"
    wordings = [f"Convert {amount} {source} to {target}.", f"How much is {amount} {source} in {target}?"]
    return rng.choice(wordings), grade + 0.07 * places


def ordering(rng: random.Random) -> Prompt:
    count = rng.randint(3, 8)
    values = [
        rng.choice(
            [
                f"{rng.randint(1, 19)}/{rng.randint(3, 20)}",
                f"{rng.uniform(0, 2):.2f}",
                f"{rng.randint(5, 180)}%",
            ]
        )
        for _ in range(count)
    ]
    return f"Put these in order from smallest to largest: {', '.join(values)}.", 0.09 * count - 0.12


def everyday(rng: random.Random) -> Prompt:
    price, people, rate = rng.randint(400, 25000) / 100, rng.randint(2, 9), rng.choice([5, 10, 15, 20, 30])
    hours, minutes, distance = rng.randint(2, 9), rng.randint(5, 55), rng.randint(60, 900)
    return rng.choice(
        [
            (f"How many minutes are {hours} hours and {minutes} minutes?", 0.06),
            (f"What is ${price:.2f} after a discount of {rate}%?", 0.18),
            (f"Split a bill of ${price:.2f} equally between {people} people.", 0.2),
            (f"Add a tip of {rate}% to ${price:.2f} and split the total between {people} people.", 0.36),
            (f"What is the average speed for {distance} km in {hours} hours {minutes} minutes?", 0.42),
            (
                f"${price:.2f} a month grows by {rate}% each year. What is paid in total over {hours} years?",
                0.68,
            ),
        ]
    )


TEMPLATES: list[Template] = [
    *(addition, subtraction, multiplication, division, brackets, percentage, fractions, remainders),
    *(divisors, number_bases, averages, roots, series, conversion, ordering, everyday),
]


def arithmetic(rng: random.Random) -> Prompt:
    text, difficulty = rng.choice(TEMPLATES)(rng)
    if rng.random() < 0.4:
        ending, extra = rng.choice(ENDINGS)
        return f"{text} {ending}", level(difficulty + extra)
    return text, level(difficulty)
