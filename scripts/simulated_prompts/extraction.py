"""Extraction prompts: an invoice, mail, log or notice, and the fields somebody needs out of it."""

import random

from .wording import Graded, Prompt, fill, graded, joined, level, listed, ungraded

FORMATS = graded("""
    0.0: as a plain list; as short bullet points; one per line; in a simple table
    0.06: as JSON; as a CSV line with a header; as YAML; as key-value pairs
    0.14: as JSON, with dates in ISO format and amounts as numbers; as JSON with null for anything that is
        missing
    0.26: as nested JSON that follows the order of the text, with the exact source words of each value beside
        it
    0.42: as JSON with a confidence for each field, and flag anything that contradicts itself
""")
ASKS = listed("""
    Extract {fields} from this {kind} {style}.; Please pull out {fields} {style}.
    From the {kind} below, list {fields} {style}.; Read this {kind} and give me {fields} {style}.
    Find {fields} in the following {kind} and return the result {style}.
""")

# For each kind of document: the fields that can be asked for, and its text, graded by how messy it is.
DOCUMENTS: dict[str, tuple[list[str], Graded]] = {
    "invoice": (
        listed("the invoice number; the date; the seller; the customer; every item with its number; the total"),
        graded("""
            0.0: {firm}, {2-99} {street}, {town}|INVOICE {1000-9999} Date: {date}|Bill to:
                {person}|{item}|Total: {total}
            0.06: {firm}|Invoice no. {100-999}/{10-99} of {date}|Customer: {person},
                {town}|{item}|{item2}|{item3}|
                VAT {5-20}% included. Total due: {total3} within {10-30} days
            0.14: {firm}, {town}|To {person}|Our ref {100-999}-B, your order of {date}|{item}|{item2}
                (replaces {good})|
                {item3}|Sum {total3}, deposit paid {deposit}|Invoice {1000-9999}, balance due {date2}:
                {balance}
        """),
    ),
    "e-mail": (
        listed("the sender; the new date and time; the old date; the room; the phone number; all persons named"),
        graded("""
            0.03: From: {person} <{mail}>|Subject: New date|Hi {first}, could we move from {date} to {date2}
                at
                {8-17}:30? Room {1-40} in {town} is booked. Call me on {phone}.
            0.1: From: {mail}|Subject: Visit|Dear {first}, thanks for the call. {date} does not suit
                {person2}, so we
                suggest {date2}, {8-17}:15, in room {1-40}. {person3} will join if the train is on time.|
                {person}, {phone}
            0.2: From: {mail}|Subject: Re: Re: Our meeting|Sorry, {first}, wrong date in my last mail: not
                {date} and not
                {date2} but {date3} at {8-17}:45, in {town}, the room next to {1-40}. {person2} is replaced by
                {person3}. My number has changed to {phone}, forget {phone2}.|{person}
        """),
    ),
    "log": (
        listed("all errors; the time of each line; the services; numbers with their units; the first warning"),
        graded("""
            0.04: 08:{10-30} {log}|08:{31-58} {log2}|09:{10-40} {log3}
            0.12: 14:{10-20} {log}|14:{21-40} {log2}|14:{41-58} {log3}|15:{10-30} {log4}|15:{31-58} {log5}
            0.2: 23:{10-58} {log}|23:59 {log2}|(clock reset)|00:{10-30} {log3}|00:{31-58} {log4}|00:59
                {log5}|01:01 {log6}
        """),
    ),
    "shipping note": (
        listed("the tracking number; the recipient; the address; the weight; both dates; the carrier"),
        graded("""
            0.02: Parcel A{10000-99999} left {town} on {date} with {carrier}. It weighs {1-30} kg and should
                reach {person},
                {2-99} {street}, {town2}, by {date2}.
            0.12: {carrier} delivery slip|No. X{1000-9999}-{10-99}, {2-30} kg gross, {2-9} pieces|From {town}
                ({date}) via {town2}
                to {person}, c/o {person2}, {2-99} {street}, {town3}, expected {date2}
        """),
    ),
    "CV": (
        listed("the name; the e-mail address; each job with its years; the skills; the present employer"),
        graded("""
            0.03: {person}, {town}, {mail}|{2005-2010}-{2011-2015}: {job} at {firm}|{2016-2018} to today:
                {job2} at {firm2}|
                Skills: {skill}, {skill2} and {skill3}
            0.12: {person}, {mail}, {phone}|Since {2018-2022} I have worked as a {job} for {firm}, before
                that for
                {3-9} years as a {job2}, first at {firm2} and then on my own in {town}. I can offer {skill}
                and {skill2}.
                References: {person2}.
        """),
    ),
    "job advert": (
        listed("the position; the pay range; the closing date; the start date; the requirements; the contact"),
        graded("""
            0.04: {firm} in {town} is looking for a {job}, {20-40} hours a week, from {date}. Pay:
                {20-40},000 to
                {41-60},000 a year. You bring {2-6} years of experience and {skill}. Write to {mail} before
                {date2}.
            0.12: Wanted: {job} (part-time possible)|{firm}, {town}, grows again! We ask for {skill}, ideally
                also
                {skill2}, and offer from {14-40} an hour upwards. Applications until {date} to {person},
                {phone}.
                Start: as agreed, not after {date2}.
        """),
    ),
    "announcement": (
        listed("the event; the place; the date; the starting time; the ticket price; the contact person"),
        graded("""
            0.05: {event} at the {venue} in {town}! {date}, {4-8} pm. Tickets {5-30} dollars. Bookings:
                {person},
                {phone}.
            0.15: {event}|{venue}, {town}, {date}|Doors open at {4-7} pm, start half an hour later. Tickets
                {5-15} dollars, at the door {16-25}, children under {6-14} free. If it rains we meet a day
                later. Ask for {person}.
        """),
    ),
    "chat": (
        listed("the final quantities; the delivery day; the address; the price; what was not ordered"),
        graded("""
            0.2: {first}: hi, {3-9} x {good} please, to {2-99} {street}|Shop: anything else?|
                {first}: no {good2} today|Shop: {money}, delivery on {date}|{first}: fine
            0.32: {first}: can you send {3-9} x {good}? Actually make it {10-15}.|Shop: sure. Anything
                else?|
                {first}: {good2}, the usual {2-6}, and no {good3} this time, the last one broke.|
                Shop: that is {money}, delivery on {date}?|{first}: better a day later, to {street} please.
        """),
    ),
    "lab sheet": (
        listed("the sample number; values with limits; the place; the name of the sampler; values above a limit"),
        graded("""
            0.06: Water sample {100-999}, well at {street}, taken {date} by {person}|pH: {5-9} (limit 9)|
                nitrate: {5-70} mg/l (limit 50)|iron: 0.{1-9} mg/l (limit 0.2)
            0.16: Soil, plot {1-40}, {town}, {date}, sampled by {person}, tested by {person2}|lead {20-300}
                (max 200)|
                zinc < {2-9}|cadmium 0.{1-9} (max 0.4, repeated: 0.{1-9})|moisture {8-40} %, no limit|Sample
                id S-{100-999}
        """),
    ),
    "news item": (
        listed("the buyer; the price; all people; all places; who bought whom and when; claims without a source"),
        graded("""
            0.1: {firm}, founded {1950-2005} in {town}, has been bought by {firm2} for {2-90} million
                dollars, {person}
                said on {date}. The {20-400} jobs in {town2} are safe.
            0.2: {firm} of {town} will go to {firm2} for {2-90} million dollars, according to {person}.
                {person2}, who
                is to lead both firms from {date}, denied that jobs in {town2} or {town3} are at risk. A
                rival offer by
                {firm3}, said to be higher, was refused last year.
        """),
    ),
}
WORDS: dict[str, Graded] = {
    "first": ungraded("Lena; Marco; Aisha; Peter; Yuki; Clara; Hugo; Samira; Olaf; Ines; Ravi; Greta; Tariq; Paula"),
    "last": ungraded("Winter; Okoro; Lindqvist; Moreau; Tanaka; Brandt; Silva; Novak; Haddad; Fenn; Castell; Ives"),
    "firm": ungraded("""
        Orchid Lane Stationery; Bluefinch Plumbing; Hollow Oak Timber; Pebble & Twine; Grey Heron Freight
        Marsh Lantern Foods; Copper Kettle Catering; Seventh Meadow Seeds; Tall Pine Roofing
        Quiet Harbour Cleaning
    """),
    "carrier": ungraded("Grey Heron Freight; Swift Barrow Couriers; Long Road Haulage; Four Winds Parcels"),
    "town": ungraded("Millbrook; Larkhill; Stonebridge; Eastmere; Fernley; Oakhaven; Port Linden; Redcliff; Winmoor"),
    "street": ungraded("Mill Lane; Harbour Street; Elm Road; Station Square; Orchard Way; Chapel Hill; Quarry Row"),
    "good": ungraded("""
        copy paper; desk lamp; oak board; drain seal; seed tray; coffee tin; work glove; shelf bracket
        paint roller
        floor wax; label roll; garden hose; filing box; tile adhesive
    """),
    "mail": ungraded("office@example.com; hello@example.org; write@example.net; desk4@example.com; post@example.org"),
    "job": ungraded("nurse; web developer; baker; surveyor; teacher; gardener; bus driver; carpenter; data analyst"),
    "skill": ungraded("first aid; bookkeeping; Spanish; a driving licence; CAD; public speaking; SQL; welding"),
    "event": ungraded(
        "Harvest fair; Chamber concert; Repair cafe; Book sale; Science night; Charity run; Film evening"
    ),
    "venue": ungraded("old mill; town hall; boathouse; school gym; library; fire station"),
    "log": ungraded("""
        INFO auth: user {100-999} logged in; WARN cache: disk at {80-99}%
        ERROR billing: timeout after {200-900} ms
        ERROR mailer: job {10-99} failed; INFO search: index built in {2-50} s; WARN uploads: retry {2-5} of 9
        ERROR uploads: file of {20-90} MB rejected; INFO backup: {3-40} tables copied
        WARN auth: {3-20} bad logins
    """),
}
MONTHS = listed("Jan; Feb; Mar; Apr; May; Jun; Jul; Aug; Sep; Oct; Nov; Dec")


def three_dates(rng: random.Random) -> list[str]:
    """Three days of one year in order, each written in one of the usual ways."""
    year, days = rng.randint(2021, 2025), sorted(rng.sample(range(12 * 28), 3))
    written = []
    for month, day in (divmod(days_passed, 28) for days_passed in days):
        name, number = MONTHS[month], day + 1
        iso = f"{year}-{month + 1:02}-{number:02}"
        written.append(rng.choice([iso, f"{number} {name} {year}", f"{name} {number}, {year}"]))
    return written


def goods_and_sums(rng: random.Random) -> dict[str, str]:
    """Three lines of an invoice with the sums that follow from them."""
    goods = [good for good, _ in rng.sample(WORDS["good"], 3)]
    numbers, cents = [rng.randint(1, 20) for _ in goods], [rng.randint(100, 9000) for _ in goods]
    lines = [f"{n} x {good} @ {price / 100:.2f}" for n, good, price in zip(numbers, goods, cents, strict=True)]
    sums = [n * price for n, price in zip(numbers, cents, strict=True)]
    deposit = sum(sums) // 300 * 100
    amounts = {"money": sums[0], "total": sums[0], "total3": sum(sums)}
    amounts |= {"deposit": deposit, "balance": sum(sums) - deposit}
    currency = rng.choice(["$", "EUR ", "GBP "])
    written = {name: f"{currency}{amount / 100:.2f}" for name, amount in amounts.items()}
    return written | {"item": lines[0], "item2": lines[1], "item3": lines[2]}


def slots_for_one(rng: random.Random) -> dict[str, Graded]:
    """The word lists, with people, dates, amounts and phone numbers drawn afresh for one document."""
    people = [f"{rng.choice(WORDS['first'])[0]} {last}" for last, _ in rng.sample(WORDS["last"], 3)]
    phones = [f"555-01{number}" for number in rng.sample(range(10, 99), 2)]
    fresh = {"person": people, "phone": phones}
    dates = dict(zip(("date", "date2", "date3"), three_dates(rng), strict=True))
    fixed = {name: [text] for name, text in (dates | goods_and_sums(rng)).items()}
    return WORDS | {name: [(text, 0.0) for text in texts] for name, texts in (fresh | fixed).items()}


def extraction(rng: random.Random) -> Prompt:
    kind = rng.choice(list(DOCUMENTS))
    fields, documents = DOCUMENTS[kind]
    document, messy = rng.choice(documents)
    text, _ = fill(rng, document, slots_for_one(rng))
    wanted = rng.sample(fields, rng.randint(1, len(fields)))
    style, extra = rng.choice(FORMATS) if len(wanted) > 1 else ("in one line", 0.0)
    ask = rng.choice(ASKS).format(fields=joined(wanted), kind=kind, style=style)
    return f"{ask}\n\n{text}", level(0.09 * (len(wanted) - 1) + messy + extra + 0.02)
