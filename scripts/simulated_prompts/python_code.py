"""Python programming prompts: from one-line functions to small systems with several constraints."""

import random

from .wording import Graded, Prompt, filled, graded, graded_code, level, listed

TEMPLATES = graded("""
    0.0: Write a Python function that {simple}. {fn_limit}
    0.0: In Python, how do I write a function that {simple}? {fn_limit}
    0.28: Write a Python function that {algorithm}. {limit}
    0.28: Implement in Python: a function that {algorithm}. {limit}
    0.3: Implement a Python class {klass}. {limit}
    0.12: Write a Python script that reads {source} and {report}. {limit}
    0.2: Write a command-line tool in Python, using argparse, that takes {source} and {report}. {limit}
    0.08: Give me a regular expression for Python's re module that matches {pattern}, and a short function
        using it. {limit}
    0.25: Write a Python {wrapper}. Show one example of its use. {limit}
    0.15: With pandas, I have a data frame with the columns {columns}. Write code that {frame}.
        {limit}
    0.15: With NumPy and without explicit loops, {array}. {limit}
    0.45: Using asyncio, write a Python program that {parallel}. {limit}
    0.12: Write pytest tests for a function {tested}. Cover {cases}.
    0.06: What is the Pythonic way to {idiom}? Give a short code example.
    0.02: What is the difference between {pair} in Python? Show it in a few lines of code.
    0.5: Design and code a small Python package for {system}. {limit} {limit2}
""")
SLOTS: dict[str, Graded] = {
    "simple": graded("""
        0.02: returns the largest number in a list; counts the vowels in a string; checks whether a word is a
            palindrome
        0.02: reverses the words of a sentence; adds up the even numbers in a list; turns a list of strings
            to upper case
        0.1: removes duplicates from a list while keeping the order; counts how often each word occurs in a
            text
        0.1: merges two dictionaries by adding the values of shared keys; splits a list into chunks of size n
        0.15: flattens a nested list of any depth; converts a Roman numeral to an integer; checks if brackets
            are balanced
        0.15: groups a list of {records} by a given key; finds the second most common value in a column of
            {records}
        0.2: parses a duration such as "2h 45m" into seconds; formats a number of bytes as KB, MB or GB
    """),
    "algorithm": graded("""
        0.05: merges overlapping time intervals; does a binary search on a rotated list; rotates a square
            matrix in place
        0.1: finds the k most frequent {records} in a stream; generates all permutations of a string without
            repeats
        0.1: evaluates an arithmetic expression given as a string, without eval; finds all anagram groups in
            a word list
        0.2: computes the edit distance between two strings; finds the shortest path in a weighted graph
        0.2: returns a topological order of tasks or reports a cycle; solves the knapsack problem for up to
            200 items
        0.3: solves a Sudoku with constraint propagation; finds the longest common substring using a suffix
            array
        0.35: finds the maximum flow in a network; computes the convex hull of a set of points; matches a
            name against a pattern with the wildcards ? and *
        0.4: finds strongly connected components without recursion; keeps the median of a sliding window in
            O(log k) per step
    """),
    "klass": graded("""
        0.0: `Stack` with push, pop and peek; `BankAccount` with deposit, withdraw and a balance that never
            goes negative
        0.05: `Matrix` that supports +, * and transpose through operators; `Playlist` that can be sliced,
            iterated and shuffled
        0.15: `LRUCache` with a capacity and O(1) get and put; `Trie` with insert, search and prefix listing
        0.15: `EventBus` with subscribe, unsubscribe and publish; `RingBuffer` of fixed size that overwrites
            the oldest entry
        0.3: `IntervalTree` with insert, delete and overlap queries; `RateLimiter` with a token bucket that
            is safe across threads
        0.4: `PersistentList` whose old versions stay usable after changes; `SkipList` with expected O(log n)
            operations
    """),
    "source": graded("""
        0.0: a text file; a CSV file of {records}; a folder of text files; a JSON file of {records}
        0.08: a web server's access log; an INI configuration file; a zip archive of CSV files; a SQLite file
            of {records}
        0.15: a 20 GB CSV file of {records} that does not fit in memory; a mix of UTF-8 and Latin-1 encoded
            files
    """),
    "report": graded("""
        0.0: prints the number of lines; lists the ten longest entries; prints everything in alphabetical
            order
        0.08: writes a summary with the mean per group; reports entries that occur twice; plots a histogram
            of the values
        0.18: finds and fixes inconsistent dates; writes one output file for each month
        0.28: detects outliers by a rolling median and explains each one; resumes where it stopped after a
            crash
    """),
    "pattern": graded("""
        0.0: a five-digit postcode; words that start with a capital letter; a time such as 09:45; a hex
            colour like #a1b2c3
        0.12: an e-mail address; an ISO date between 1900 and 2099; a quoted string with escaped quotes; an
            IPv4 address
        0.3: nested parentheses up to depth three; a line comment that is not inside a string; a number in
            scientific notation
        0.4: a password with at least one digit, one capital and no letter three times in a row; an IPv6
            address
    """),
    "wrapper": graded("""
        0.0: decorator that prints how long a function took; context manager that changes the working folder
            and restores it
        0.1: decorator that retries on exceptions with exponential back-off; generator that yields a file in
            fixed-size blocks
        0.25: decorator that caches results on disk, keyed by the arguments; descriptor that validates types
            on assignment
        0.4: metaclass that registers plug-ins and refuses duplicates; decorator that works for both sync and
            async functions
    """),
    "frame": graded("""
        0.0: shows the first rows with missing values; sorts by the last column; computes the mean of each
            numeric column
        0.1: computes the total per group and month; keeps only the newest row of each group; fills gaps by
            interpolation
        0.25: computes a seven-day rolling average per group; reshapes it from long to wide and flattens the
            column names
        0.35: finds for each row the closest earlier row of another group; numbers the runs of equal values
            within each group
    """),
    "array": graded("""
        0.0: create a 5 x 5 identity matrix and double its diagonal; find the column with the largest mean
        0.15: normalise each row of a matrix to length one; replace every negative entry by the mean of its
            column
        0.3: compute all pairwise distances between two sets of points; compute a moving average with stride
            tricks
        0.45: solve a batch of 3 x 3 systems at once; implement a two-dimensional convolution with padding
    """),
    "parallel": graded("""
        0.0: downloads a list of pages with at most five requests at a time; pings several hosts and prints
            the first reply
        0.15: runs a pool of workers over a queue of {records} and shuts down cleanly on Ctrl-C; merges
            several streams by time
        0.3: serves a chat room over TCP with time-outs and back-pressure; implements a publish-subscribe
            broker with replay
    """),
    "tested": graded("""
        0.0: `is_leap_year(year)`; `clamp(value, low, high)`; `initials(full_name)`; `slugify(title)` for
            URL-safe names
        0.15: `parse_price(text)`, which accepts several currencies; `split_bill(total, people)`, which must
            not lose a cent
        0.3: `schedule(meetings, rooms)`, which avoids overlaps; `diff(old, new)`, which compares nested
            dictionaries
    """),
    "cases": graded("""
        0.0: normal input and empty input; two typical cases and one error
        0.1: boundary values, wrong types and Unicode; the error messages as well as the results
        0.25: its properties with Hypothesis rather than fixed examples; hostile input and a million random
            cases
    """),
    "idiom": graded("""
        0.0: swap two variables; loop with an index; read a file line by line; join strings with a comma;
            reverse a list
        0.1: sort {records} by two keys, one descending; build a dictionary with default values; copy a
            nested list
        0.25: make a class of {records} immutable and hashable; avoid circular imports; stream JSON without
            loading it all
    """),
    "pair": graded("""
        0.0: a list and a tuple; `==` and `is`; `append` and `extend`; a set and a dictionary; `break` and
            `continue`
        0.12: `@staticmethod` and `@classmethod`; a shallow and a deep copy; `*args` and `**kwargs`; an
            iterator and an iterable
        0.3: threads and processes under the GIL; `__new__` and `__init__`; a coroutine and a generator;
            `__getattr__` and `__getattribute__`
    """),
    "system": graded("""
        0.0: tracking {records} in a local file; a quiz in the terminal; converting between units
        0.12: a job queue with retries on top of SQLite; an expression parser with variables; a static site
            generator
        0.25: an in-memory database with transactions and rollback; a spreadsheet engine that recomputes only
            what changed
    """),
    "records": graded("""
        0.0: orders; students; sensor readings; books; invoices; support tickets; bus stops; workouts;
            recipes; parcels; plants
    """),
    "columns": graded("""
        0.0: shop, date and amount; name, day and score; station, time and value; user, time and page; item,
            month and stock
    """),
    "limit": graded("""
        0.0: Keep it short.; Add docstrings.; Use type hints.; Include one example of use.; Explain how it
            works.
        0.05: Raise a clear error on bad input.; Add three tests.; Use only the standard library where you
            can.
        0.1: State its time and memory cost and justify both.; Explain one alternative you rejected, and why.
        0.18: Argue that it is correct for empty, huge and malformed input.; Show how you would measure its
            speed and what limits it.
    """),
    "fn_limit": graded("""
        0.0: Keep it short.; Add a docstring.; Use type hints.; Include one example call.
        0.06: Do not import anything.; Raise a clear error on bad input.; Add three assertions as tests.
        0.16: Do it in a single expression.; Use neither loops nor comprehensions.; State its time and memory
            cost.
    """),
}

# Code that works, to be explained or improved; words in capitals stand for names and numbers.
SNIPPETS = graded_code("""
== 0.0
result = []
for x in ITEMS:
    if x > LIMIT:
        result.append(x * 2)
print(result)
== 0.02
total = 0
for i in range(len(ITEMS)):
    total = total + ITEMS[i]
print(total / len(ITEMS))
== 0.15
names = {}
for key, value in ITEMS:
    names.setdefault(value % LIMIT, []).append(key)
print(names)
== 0.15
def pick(ITEMS):
    return sorted(ITEMS, key=lambda x: (-x[1], x[0]))[:LIMIT]
== 0.3
def walk(ITEMS, depth=0):
    for x in ITEMS:
        if isinstance(x, list):
            yield from walk(x, depth + 1)
        elif depth < LIMIT:
            yield x, depth
== 0.4
from functools import reduce

def chain(*steps):
    return reduce(lambda f, g: lambda x: g(f(x)), steps)

ITEMS = chain(str, len, lambda n: n ** LIMIT)
""")
REQUESTS = graded("""
    0.05: What does this Python code do?; Does this Python code handle empty input correctly?; Add type hints
        and a docstring to this code:
    0.12: Rewrite this Python code as a comprehension where possible:; Refactor this Python so that it is
        easier to test:
    0.25: Make this Python code at least twice as fast for a million entries and explain why it is faster:
    0.35: State the time and memory cost of this code, then rewrite it to stream its input:
""")
NAMES = listed("orders; readings; scores; prices; ages; tickets; lengths; visits; votes; weights")


def about_a_snippet(rng: random.Random) -> Prompt:
    (code, grade), (request, extra) = rng.choice(SNIPPETS), rng.choice(REQUESTS)
    code = code.replace("ITEMS", rng.choice(NAMES)).replace("LIMIT", str(rng.randint(2, 9)))
    return f"{request}\n\n{code}", level(grade + extra + 0.1)


def python_code(rng: random.Random) -> Prompt:
    return about_a_snippet(rng) if rng.random() < 0.15 else filled(rng, TEMPLATES, SLOTS)
