"""Legal prompts: generic questions on law, clauses to read or draft, and cases with several issues."""

import random

from .wording import Graded, Prompt, filled, graded

TEMPLATES = graded("""
    0.0: What does "{term}" mean in law? {define}
    0.08: What is the difference between {pair} in law? {define}
    0.05: In general, can a landlord {landlord}? {place} {depth}
    0.05: Is an employer usually allowed to {employer}? {place} {depth}
    0.05: I bought {goods} and {defect}. What rights does a consumer generally have? {place} {depth}
    0.12: Explain in plain language what this contract clause means: "{clause}" {depth}
    0.2: Draft a short clause for {contract} that deals with {topic}. {clause_wish}
    0.12: What usually happens to {estate} when someone dies without a will? {place} {depth}
    0.15: Who owns the copyright in {work}? {place} {depth}
    0.2: What must {business} do under data protection law when {privacy}? {depth}
    0.25: A {who} and a {who2} made an oral agreement about {deal}. Later the {who} {breach}. Is there a
        claim, and what must be proved? {depth}
    0.3: While {accident}, a {who} was injured. Discuss who may be liable and which defences could be raised.
        {depth}
    0.1: Which steps does a typical {procedure} go through, from start to end? {place}
    0.14: Compare the main legal forms for {business}: liability, tax and formalities. {place}
    0.38: Write a short memo on whether {doctrine} applies where a {who} relied on the word of a {who2}, who
        later {breach}. {drafting}
    0.52: A {who} living abroad signed {contract} online and later {breach}. Under the conflict of laws,
        which court decides and which law applies? {drafting}
    0.1: A friend was asked to sign {contract}. Which points should one check about {topic} before signing?
        {place}
""")
SLOTS: dict[str, Graded] = {
    "term": graded("""
        0.0: contract; plaintiff; tenant; witness; damages; bail; will; evidence; negligence
        0.1: injunction; affidavit; lien; subpoena; indemnity; tort; arbitration; power of attorney;
            liquidated damages
        0.25: res judicata; promissory estoppel; force majeure; novation; subrogation; mens rea; usufruct;
            ultra vires
        0.4: rule against perpetuities; renvoi; cy-pres doctrine; champerty; detinue; equitable tracing;
            contra proferentem
    """),
    "pair": graded("""
        0.0: a lease and a licence; civil and criminal law; a judge and a jury; a fine and damages; a
            copyright and a trademark
        0.15: libel and slander; a condition and a warranty; murder and manslaughter; a patent and a trade
            secret; void and voidable
        0.3: joint tenancy and tenancy in common; assignment and novation; mediation and conciliation;
            misrepresentation and mistake
        0.42: a fixed and a floating charge; rescission and repudiation; obiter dicta and ratio decidendi;
            bailment and trust
    """),
    "landlord": graded("""
        0.0: enter a flat without notice; keep the whole deposit; raise the rent every month; forbid pets;
            change the locks
        0.08: charge for normal wear and tear; refuse a subtenant; end a lease early to sell the building;
            install a camera in the hall
        0.16: pass on the cost of a new heating system; recover rent after accepting the keys back; enforce a
            lease signed by a minor
    """),
    "employer": graded("""
        0.0: cut wages without asking; dismiss someone during sick leave; refuse holiday in summer; ask about
            family plans
        0.1: read e-mail on a work account; demand repayment of training costs; change the place of work;
            forbid a second job
        0.2: enforce a two-year ban on working for competitors; monitor staff by location data; replace
            strikers with temps
    """),
    "goods": graded("""
        0.0: a second-hand car; a washing machine; a lamp online; a sofa; a phone; a bicycle; a garden table;
            a tent
        0.04: a used boat at an auction; custom-made curtains; a clock sold as an antique; a kitchen by
            instalments
    """),
    "defect": graded("""
        0.0: it broke after a week; it never arrived; it is the wrong colour; it does not match the advert
        0.06: the seller says the warranty does not apply; the seller has closed the shop; the fault showed
            only after 14 months
        0.12: the seller acted for an unknown owner; the price was an obvious error; it was seized as stolen
            property
    """),
    "clause": graded("""
        0.0: The buyer shall pay within 30 days of receipt.; Notice must be given in writing one month in
            advance.
        0.1: Neither party is liable for delay caused by events beyond its reasonable control.
        0.1: This agreement may be changed only in writing signed by both parties.
        0.2: The supplier shall indemnify the client against all third-party claims arising out of the
            services.
        0.2: If any provision is held invalid, the remainder shall continue in full force.
        0.35: Time shall be of the essence, save that the purchaser may by notice extend completion without
            prejudice to accrued rights.
        0.35: All warranties are given severally and not jointly, and are qualified by matters fairly
            disclosed in the schedule.
    """),
    "contract": graded("""
        0.0: a rental agreement; an employment contract; a gym membership; a loan between friends; a
            freelance contract
        0.08: a software licence; a franchise agreement; a partnership agreement; a construction contract; a
            lease of farmland
        0.16: a shareholders' agreement; a joint-venture agreement; a reinsurance treaty; a charter of a
            cargo ship
    """),
    "topic": graded("""
        0.0: late payment; notice periods; deposits; repairs; confidentiality
        0.08: limits of liability; termination for cause; ownership of results; changes in price;
            non-competition
        0.16: exit of a deadlocked partner; governing law and arbitration; change of control; set-off and
            retention
    """),
    "clause_wish": graded("""
        0.0: Use plain words.; Keep it under 120 words.; One paragraph is enough.
        0.1: Balance the interests of both sides.; Add a definition of each key term.; Leave no gap for delay.
        0.22: Offer a version for each side and explain the differences.; Explain which words courts may read
            narrowly.
    """),
    "drafting": graded("""
        0.0: Use plain words.; Keep it under 300 words.; Begin with a short answer.
        0.1: Name the strongest counter-argument.; Say which facts are missing.
        0.2: State the issue, rule, application and conclusion.
        0.3: Discuss both common-law and civil-law approaches and note where courts disagree.
    """),
    "estate": graded("""
        0.0: a house; savings; a family business; personal letters; a pet
        0.08: debts; a joint bank account; an online account; a life insurance policy; land in another country
        0.16: shares subject to a buy-out clause; a right to royalties; property held in trust for minors
    """),
    "work": graded("""
        0.0: a wedding photo; a school essay; a song written by two friends; a tattoo; a recipe; a logo
        0.1: a photo taken by a monkey; code written by an employee at home; a translation made without
            permission
        0.2: a picture produced by a computer program; a parody of a poem; a database of bus timetables; a
            stage lighting design
    """),
    "business": graded("""
        0.0: a small bakery; a hair salon; a sports club; a web shop; a freelance designer
        0.06: a private clinic; a school; a charity; a car-sharing start-up; a payroll service
    """),
    "privacy": graded("""
        0.0: a customer asks for deletion; a laptop with customer data is stolen; it starts a newsletter
        0.1: a former employee asks for all e-mails that mention them; it moves its data to a provider abroad
        0.22: it trains a scoring model on old customer records; two group companies merge their customer
            files
    """),
    "who": graded("""
        0.0: farmer; painter; student; shopkeeper; plumber; cyclist; musician; caterer; nurse; courier
    """),
    "deal": graded("""
        0.0: the sale of a horse; repairs to a roof; the use of a garage; a weekly delivery of eggs; the
            price of a painting
        0.08: a share in future profits; the sale of a plot of land; exclusive rights to a recipe; care in
            exchange for a house
    """),
    "breach": graded("""
        0.0: refused to pay; withdrew from it; did only half of what was promised; stopped replying
        0.08: claimed to have been joking; became insolvent; performed in a way nobody had expected
        0.15: invoked a change in the law; assigned the claim to a relative; accepted part performance
            without protest
    """),
    "accident": graded("""
        0.0: crossing an icy car park; using a borrowed ladder; visiting a zoo; riding in a friend's car
        0.1: helping at a charity run; testing a prototype; trespassing on a building site; attending a
            crowded concert
        0.2: being rescued by a passer-by who made things worse; using a machine altered by its previous owner
    """),
    "procedure": graded("""
        0.0: small claims case; divorce; traffic fine appeal; planning application; eviction
        0.12: criminal trial; trademark registration; company insolvency; asylum application; class action
        0.25: judicial review; cross-border arbitration; antitrust merger review; extradition request
    """),
    "doctrine": graded("""
        0.0: unjust enrichment; frustration of contract; vicarious liability; good faith
        0.1: promissory estoppel; piercing the corporate veil; the duty to mitigate; undue influence
        0.28: constructive trust; culpa in contrahendo; loss of a chance; transferred loss
    """),
    "place": graded("""
        0.0: I am asking in general.; Assume an ordinary case.; A general answer is fine.
        0.06: Assume a common-law country.; Assume a civil-law country.; Assume a federal state.
        0.2: Contrast two legal systems of your choice.; Note where national laws differ most.
    """),
    "define": graded("""
        0.0: Answer briefly.; Explain it simply.; Give one example.; Two sentences are enough.
        0.06: Use it in a sentence from a judgment.; Say where students usually go wrong.
        0.2: Describe how legal systems differ on this.; Trace how the idea has developed over time.
    """),
    "depth": graded("""
        0.0: Answer briefly.; Explain it simply.; Give one example.; Two sentences are enough.
        0.06: Mention one important exception.; List the conditions one by one.; Say what a lawyer would ask
            first.
        0.24: Discuss the policy reasons behind the rule.; Give the arguments of both sides and the likely
            outcome.
    """),
}


def legal(rng: random.Random) -> Prompt:
    return filled(rng, TEMPLATES, SLOTS)
