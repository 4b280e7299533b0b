"""Broken code for the debugging prompts, graded; capitals stand for names and numbers put in later."""

from .wording import graded_code

# One fault each, most of them with the error or the symptom it causes.
BROKEN_PYTHON = graded_code("""
== 0.02
for ITEM in ITEMS
    print(ITEM)

SyntaxError: expected ':'
== 0.05
ITEMS = [3, 1, N]
print(ITEMS[3])

IndexError: list index out of range
== 0.06
VALUE = input("VALUE: ")
print(VALUE + N)

TypeError: can only concatenate str (not "int") to str
== 0.1
def total(ITEMS):
    VALUE = 0
    for ITEM in ITEMS:
        VALUE += ITEM

print(total([1, 2, N]))  # None
== 0.05
ITEM = {'VALUE': N}
print(ITEM['valeu'])

KeyError: 'valeu'
== 0.12
def mean(ITEMS):
    return sum(ITEMS) // len(ITEMS)

print(mean([1, 2, N]))  # always a whole number
== 0.15
ITEMS = load()
ITEMS = ITEMS.sort()
print(ITEMS[:N])

TypeError: 'NoneType' object is not subscriptable
== 0.18
i = 0
while i < len(ITEMS):
    if ITEMS[i].VALUE > N:
        i += 1
# never ends
== 0.16
for i in range(1, len(ITEMS)):
    VALUE += ITEMS[i]  # the result is always too small by one ITEM
== 0.28
def add(ITEM, ITEMS=[]):
    ITEMS.append(ITEM)
    return ITEMS

add(N)
print(add(2))  # shows both
== 0.3
for ITEM in ITEMS:
    if ITEM.VALUE < N:
        ITEMS.remove(ITEM)
# some small ones are still there
== 0.25
VALUE = N

def more():
    VALUE += 1
    return VALUE

more()

UnboundLocalError: local variable 'VALUE' referenced before assignment
== 0.28
if VALUE * 0.1 == 0.3:
    finish(ITEMS)  # never called although VALUE is 3
== 0.35
grid = [[0] * N] * N
grid[0][1] = VALUE
print(grid)  # the whole column changes
== 0.4
calls = [lambda: ITEM.VALUE for ITEM in ITEMS]
print([call() for call in calls])  # all the same
== 0.25
for key in ITEMS:
    if ITEMS[key] > N:
        del ITEMS[key]

RuntimeError: dictionary changed size
== 0.36
import copy
backup = copy.copy(ITEMS)
backup[0].VALUE = N
print(ITEMS[0].VALUE)  # N as well
== 0.38
rows = (ITEM.VALUE for ITEM in ITEMS)
print(max(rows))
print(sum(rows))  # 0, although max shows N
== 0.42
async def fetch_all(ITEMS):
    return [fetch(ITEM) for ITEM in ITEMS]

RuntimeWarning: coroutine was never awaited
== 0.4
class ITEM:
    ITEMS = []
    def add(self, VALUE):
        self.ITEMS.append(VALUE)
# a new ITEM already contains the values of the old one
== 0.4
def parse(line):
    try:
        return float(line.split(',')[N])
    except:
        pass

VALUE = sum(parse(line) for line in ITEMS)

TypeError: unsupported operand type(s) for +: 'float' and 'NoneType'
== 0.55
@lru_cache
def find(VALUE):
    return [ITEM for ITEM in ITEMS if ITEM.VALUE == VALUE]

find(N).clear()
print(find(N))  # empty from now on
== 0.45
when = datetime.fromisoformat(ITEM.VALUE)
if when < datetime.now(timezone.utc):
    ITEMS.remove(ITEM)

TypeError: can't compare offset-naive and offset-aware datetimes
== 0.6
VALUE = 0

def work():
    global VALUE
    for _ in range(N * 100_000):
        VALUE += 1

threads = [Thread(target=work) for _ in range(4)]
# VALUE differs from run to run
== 0.7
def move(a, b, VALUE):
    with a.lock:
        with b.lock:
            a.VALUE -= VALUE
            b.VALUE += VALUE
# with N threads the program hangs after some minutes
== 0.55
class Node:
    def __init__(self, VALUE):
        self.VALUE = VALUE
    def __eq__(self, other):
        return self.VALUE == other.VALUE

seen = {Node(N)}  # TypeError: unhashable type: 'Node'
== 0.78
async def worker(queue):
    while True:
        ITEM = await queue.get()
        try:
            await handle(ITEM)
        except Exception:
            continue
        queue.task_done()
# queue.join() hangs about once in N runs
== 0.5
pool = ProcessPoolExecutor(N)
results = pool.map(lambda ITEM: ITEM.VALUE, ITEMS)

PicklingError: can't pickle <function <lambda>>
""")
BROKEN_ELSEWHERE = graded_code("""
== 0.35
for (var i = 0; i < N; i++) {
  setTimeout(() => console.log(i), 100);
}
// prints N again and again
== 0.2
const VALUE = ITEMS.map(ITEM => { ITEM.VALUE * N });
console.log(VALUE); // [undefined, undefined]
== 0.5
int *ITEMS = malloc(N);
for (int i = 0; i <= N; i++) ITEMS[i] = i;
/* crashes now and then */
== 0.5
char *ITEM(void) {
    char VALUE[N];
    return VALUE;
}
/* prints garbage */
== 0.3
#!/bin/bash
for ITEM in $(ls *.txt); do
  mv $ITEM VALUE/
done
# fails for names with spaces
== 0.25
if (ITEM.VALUE == "N") { ... } // Java: false although both print N
== 0.6
std::vector<int>& ITEMS() {
    std::vector<int> VALUE(N);
    return VALUE;
} // undefined behaviour
== 0.75
volatile int VALUE;
void add() { for (int i = 0; i < N; i++) VALUE++; } // two threads, sum too small
""")
# Harmless code that may stand before the fault.
DISTRACTIONS = graded_code("""
== 0.08
log = logging.getLogger(__name__)
settings = read_settings('VALUE.toml')
== 0.12
def check(ITEM):
    assert ITEM is not None, 'no ITEM'
    return ITEM

seen = set()
== 0.15
@dataclass
class Record:
    name: str
    VALUE: float = 0.0

records = [Record('a'), Record('b', N)]
""")
