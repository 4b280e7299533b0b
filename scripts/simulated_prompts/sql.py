"""SQL prompts over a dozen invented schemas: from plain selects to window functions and schema design."""

import random

from .wording import Graded, Prompt, fill, filled, graded, level, listed

# An invented database a line: where it is kept, a table of things (name, label column, text column), and a
# table of what happens to them (name, key to the things, number column, date column).
SCHEMAS = listed("""
    public library, books, title, genre, loans, book_id, days_kept, loaned_on
    web shop, products, name, category, orders, product_id, quantity, ordered_at
    clinic, patients, full_name, ward, visits, patient_id, fee, visited_on
    university, students, name, faculty, grades, student_id, points, graded_on
    small airport, flights, code, airline_group, bookings, flight_id, seats, booked_at
    gym, members, nickname, plan, checkins, member_id, minutes, checked_in_at
    cinema, films, title, language, screenings, film_id, tickets_sold, shown_at
    weather service, stations, name, region, readings, station_id, rainfall_mm, measured_at
    bakery chain, employees, name, department, shifts, employee_id, hours, worked_on
    car workshop, vehicles, plate, model, repairs, vehicle_id, cost, repaired_on
    hotel, rooms, number, floor, stays, room_id, nights, arrived_on
    online game, players, handle, league, matches, player_id, score, played_at
    farmers' cooperative, farms, name, crop, harvests, farm_id, tonnes, harvested_on
""")
SCHEMA_PARTS = ("place", "t", "label", "group", "e", "key", "amount", "day")
TABLES = "{t}(id, {label}, {group}) and {e}(id, {key}, {amount}, {day})"
INTROS = [
    f"The database of a/an {{place}} has the tables {TABLES}.",
    f"I work with these two tables of a/an {{place}}: {TABLES}.",
    f"Tables: {TABLES}.",
    "CREATE TABLE {t} (id INT PRIMARY KEY, {label} TEXT, {group} TEXT);|"
    "CREATE TABLE {e} (id INT PRIMARY KEY, {key} INT REFERENCES {t}, {amount} NUMERIC, {day} TIMESTAMP);|",
]
TASKS = graded("""
    0.02: Write a SQL query that lists every {label} in alphabetical order.
    0.04: Write a query that returns all rows of {e} where {amount} is above {10-90}.
    0.06: How do I count the rows of {t} whose {group} starts with 'S'?
    0.1: Show the {label} and {group} of the {3-20} newest {e}, newest first.
    0.16: Write a query for the total {amount} per {group}, largest first.
    0.2: Which rows of {t} have no {e} at all? Write the query.
    0.26: List each {group} with more than {5-60} {e} in the last {2-11} months, with the average {amount}.
    0.32: Write an UPDATE that sets {group} to 'unknown' for all {t} without {e} since {2019-2024}.
    0.36: Delete duplicate rows from {e} (same {key} and {day}), keeping the one with the lowest id.
    0.42: For each {group}, show the row of {t} with the highest total {amount}. Ties must all be shown.
    0.48: Write a query with a running total of {amount} per {key}, ordered by {day}.
    0.5: Pivot the monthly sum of {amount} into one row per {group} with twelve month columns.
    0.55: Compute the median {amount} per {group} without a built-in median function.
    0.6: Show month-over-month growth of {amount} in percent, with zero for months without any {e}.
    0.66: Find for each {key} the longest run of consecutive days with at least one row in {e}.
    0.7: Group the {e} of each {key} into sessions separated by gaps of more than {20-90} days, with start,
        end and total.
    0.76: Build a cohort table: by month of first {day}, the share of {t} with another row in {e} after {2-9}
        months.
    0.8: Write an upsert that loads a staging table into {e}, rejects rows with an unknown {key}, and logs
        why, in one statement.
""")
ADVICE = graded("""
    0.05: For a/an {place}, should {group} be a column of {t} or a table of its own in SQL? Answer briefly.
    0.08: Explain what this query does:|SELECT {group}, COUNT(*) FROM {t} GROUP BY {group} ORDER BY 2 DESC;
    0.2: Explain what this query returns and why it may show NULL:|SELECT t.{label}, SUM(x.{amount}) FROM {t}
        t LEFT JOIN {e} x ON x.{key} = t.id GROUP BY t.{label};
    0.45: This query on a table of {20-900} million rows is slow. Which index helps, and why?|SELECT * FROM
        {e} WHERE {key} = 42 AND {day} >= '2024-01-01' ORDER BY {amount} DESC LIMIT 10;
    0.4: Rewrite this without a correlated subquery:|SELECT {label}, (SELECT MAX({amount}) FROM {e} WHERE
        {e}.{key} = {t}.id) FROM {t};
    0.55: Design a relational schema for a/an {place} that stores {t}, {e} and their price changes over time.
        Give the CREATE TABLE statements with keys and constraints.
    0.62: Write a recursive common table expression that walks up a parent_id column in {t} and adds up
        {amount} from {e} along the path.
    0.7: Two transactions both check {e} for a row of {t} and insert one if there is none. Which isolation
        level prevents double entries, and what does it cost?
    0.85: Partition {e} by {day} without downtime while writes go on: give the SQL of every step, with
        constraints, backfill and the swap.
    0.9: Write a trigger that keeps a per-{group} total of {amount} correct under concurrent inserts, updates
        and deletes on {e}, and argue that it cannot drift.
""")
EASY_WISHES = graded("""
    0.0: Use standard SQL.; Explain the query in one sentence.; SQLite syntax, please.; Use PostgreSQL.
    0.04: It should work in both MySQL and PostgreSQL.; Explain each clause to a beginner.
""")
HARD_WISHES = graded("""
    0.0: Use standard SQL.; Explain the query in one sentence.; SQLite syntax, please.; Use PostgreSQL.
    0.05: Use a common table expression.; It should work in both MySQL and PostgreSQL.
    0.05: Mention which index it needs.; Say how you would test it.
    0.12: Do not use window functions.; Use neither subqueries nor common table expressions.
    0.12: Treat a missing {amount} as unknown, not as zero.; It must stay fast on {30-900} million rows.
""")
GREETINGS = listed("Hi!; I am new to SQL.; Quick database question.; I need some SQL.; Help with a query, please.")


def task_on_tables(rng: random.Random, slots: dict[str, Graded]) -> Prompt:
    task, grade = rng.choice(TASKS)
    wishes = {"wish": HARD_WISHES if grade > 0.4 else EASY_WISHES}
    ending = rng.choice(["", "{wish}"])
    text, extra = fill(rng, f"{rng.choice(INTROS)} {task} {ending}", slots | wishes)
    return text, level(grade + extra)


def sql(rng: random.Random) -> Prompt:
    parts = zip(SCHEMA_PARTS, rng.choice(SCHEMAS).split(", "), strict=True)
    slots: dict[str, Graded] = {name: [(word, 0.0)] for name, word in parts}
    text, difficulty = filled(rng, ADVICE, slots) if rng.random() < 0.3 else task_on_tables(rng, slots)
    if rng.random() < 0.12:
        text = f"{rng.choice(GREETINGS)} {text}"
    return text, difficulty
