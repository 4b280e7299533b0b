"""Short invented reports, sentence by sentence, that the summarization prompts are assembled from."""

from .wording import Graded, listed, ungraded

# The first sentence of a report always stays. Any other may be left out, so none relies on another.
PASSAGES = [
    listed("""
        The town council of {town} voted on {day} to {plan}.
        The decision passed by {5-9} votes to {1-4} after a debate of almost {two} hours.
        Supporters argued that the present situation had cost the town about {20-90},000 dollars a year.
        Several residents complained that they had learned of the plan only from a notice at the library.
        A study paid for by the county estimates that work would take {8-30} months.
        The mayor promised a public report every quarter and a telephone line for complaints.
        Shop owners near the old station fear that customers will stay away during the works.
        A final vote on the budget is expected before the end of {month}.
    """),
    listed("""
        Researchers at a {institute} tracked {120-900} {animals} for {two} years to study {question}.
        Each animal carried a tag that recorded its position every {10-50} minutes.
        Contrary to what the team expected, the youngest animals travelled furthest.
        Survival fell by {5-30} percent in the driest season, but recovered within a year.
        The authors caution that two of the study areas were also affected by a fire.
        Earlier work had looked only at animals in captivity.
        The group now plans to repeat the study in {region} with a larger sample.
        The findings may help to decide where protected areas should lie.
    """),
    listed("""
        A maker of {goods} based in {town} reported results for the quarter that ended in {month}.
        Revenue rose by {3-19} percent to {12-95} million dollars, mostly because of orders from abroad.
        Profit fell slightly, as the price of raw materials climbed faster than the firm could raise its own.
        The company opened {two} new warehouses and closed one plant.
        Management expects growth to slow next year and gave no forecast for profit.
        Staff numbers stayed at about {400-900}, although {20-60} positions remain open.
        One large customer now accounts for a quarter of all sales, which analysts called a risk.
        The board proposed to pay the same dividend as last year.
    """),
    listed("""
        A storm that reached {region} on {day} night left about {3-40},000 homes without power.
        Gusts of up to {100-160} km/h were measured near {town}.
        Most roads were open again by noon, but the bridge in the north remains closed to lorries.
        No deaths were reported, and {3-25} people were treated for minor injuries.
        Schools will stay shut until inspectors have checked their roofs.
        Forecasters had warned of the storm {two} days earlier, yet its path shifted during the night.
        Insurance firms put the first estimate of the damage at {4-60} million dollars.
        Volunteers handed out hot meals in the sports hall.
    """),
    listed("""
        The {museum} in {town} reopened this week after {two} years of renovation.
        The building dates from {1820-1910} and was once a {old_use}.
        Visitors can now see {200-900} objects that had never left the storerooms.
        A new wing, lit only from above, holds the collection of {goods}.
        Entry is free for children and on the first {day} of each month.
        Critics praised the clear labels but found the route through the rooms confusing.
        The costs were {10-40} percent higher than planned, since the foundations had to be strengthened.
        The director hopes for {40-300} thousand visitors in the first year.
    """),
    listed("""
        I have used this {gadget} every day for {two} months, and my feelings are mixed.
        It was easy to set up and worked within {5-30} minutes.
        The battery lasts about {5-19} hours, which is less than the box claims.
        Twice it stopped in the middle of a job and had to be restarted.
        Support answered within a day and sent a spare part without charge.
        The manual is short and the drawings are too small to read.
        My neighbour owns an older model that is louder but has never failed.
        At the current price I would buy it again, though I would wait for a sale.
    """),
    listed("""
        From: {role}. To: all staff. Subject: move of the {department} department on {day}.
        The whole team will work from the second floor from {month} onwards.
        Please pack your desk by noon, label every box and leave the keyboard on top.
        Phones will be switched over in the evening and may be silent for up to {two} hours.
        Anyone who cannot be present may name a colleague who will pack for them.
        Parking in the yard is not possible while the vans are there.
        Those with a permanent standing desk keep it, but all others will be assigned seats by lot.
        Questions go to the office team and not to the movers.
    """),
    listed("""
        {club} beat their rivals from {town} {3-5} to {1-2} on {day} in front of {2-30},000 people.
        The first goal fell after only {2-9} minutes, from a corner that nobody cleared.
        The visitors hit the post twice before the break and had a penalty refused.
        A change of formation after the interval decided the match.
        The captain left the pitch with a knee injury and may be out for {two} weeks.
        It was the fifth win in a row, the longest run since {1985-2010}.
        The losing coach blamed the long journey and said his side deserved a draw.
        With {3-9} matches left, the club is now second in the table.
    """),
    listed("""
        The {canal} near {town} was dug between {1760-1790} and {1795-1830} to carry {cargo} to the coast.
        At its height, {two} hundred boats passed the main lock every week.
        Many of the workers had come from other regions and stayed afterwards.
        Leaks in the chalk section swallowed so much water that pumps ran day and night.
        The railway took most of the trade within {two2} decades.
        For a time the bed was used as a rubbish tip, and parts were filled in.
        Volunteers began to restore it in {1965-1985} and have reopened {10-60} kilometres.
        Today it serves walkers, anglers and a small number of holiday boats.
    """),
    listed("""
        A trial of a new treatment for {illness} enrolled {150-900} adults at {3-20} hospitals.
        Half of them received the treatment and half a placebo for {two} months.
        Symptoms improved in {40-70} percent of the treated group and in {20-38} percent of the others.
        Side effects were mostly mild, with headache the most common.
        About one in {6-12} participants left the trial early.
        The trial was too short to show whether the benefit lasts.
        An independent board reviewed the data {two2} times and saw no reason to stop.
        A larger study that compares the treatment with the usual medicine is planned for {region}.
    """),
    listed("""
        Minutes of the {department} team meeting on {day}, chaired by the {role}.
        The team agreed to postpone the launch by {two} weeks because of open test results.
        The supplier in {town} confirmed delivery of the missing parts before the end of {month}.
        Two members asked for clearer rules on weekend work, and a draft will be circulated.
        The budget is {2-9} percent over plan, mainly because of freight costs.
        It was decided to keep the old software for one more year.
        No agreement was reached on the new logo.
        The next meeting takes place in the large room and starts at nine.
    """),
    listed("""
        Many homes in {region} now heat with {heat}, and engineers have measured what this means for the grid.
        On the coldest evenings, demand in the test area rose by {8-35} percent.
        Houses built before {1950-1985} used almost twice as much energy as new ones.
        Small shifts in timing, for example heating water at noon, cut the peak by {4-15} percent.
        Tenants reported that they did not notice the shifts.
        The operator had expected to replace {two} hundred transformers, and now plans for half as many.
        Critics note that the winter of the test was unusually mild.
        A simple tariff with two prices worked as well as a complicated one.
    """),
]
SLOTS: dict[str, Graded] = {
    "town": ungraded(
        "Ashford Vale; Millbrook; Larkhill; Stonebridge; Eastmere; Fernley; Oakhaven; Port Linden; Winmoor"
    ),
    "day": ungraded("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday"),
    "month": ungraded("March; April; May; June; September; October; November"),
    "two": ungraded("two; three; four; five; six"),
    "region": ungraded(
        "the northern islands; the river delta; the eastern highlands; the lake district; the dry south"
    ),
    "plan": ungraded("""
        rebuild the main street; build a new swimming pool; renovate the old town hall; widen the bridge
        lay tram tracks; turn the freight yard into housing; build an underground car park
    """),
    "institute": ungraded("coastal research station; mountain university; marine laboratory; wildlife institute"),
    "animals": ungraded("seals; storks; hedgehogs; turtles; reindeer; bats; wild goats; eels; foxes; albatrosses"),
    "question": ungraded(
        "the effects of warmer winters; how they react to noise; their migration; how they raise their young"
    ),
    "goods": ungraded(
        "garden furniture; bicycle parts; glassware; woollen blankets; clocks; roof tiles; ceramics; tin toys"
    ),
    "museum": ungraded(
        "maritime museum; museum of clocks; textile museum; city gallery; museum of printing; toy museum"
    ),
    "old_use": ungraded("grain store; girls' school; railway shed; brewery; customs house; barracks"),
    "gadget": ungraded(
        "robot vacuum; electric bicycle; bread maker; weather station; cordless drill; e-reader; lawn mower"
    ),
    "role": ungraded("head of operations; office manager; project lead; finance director; deputy director"),
    "department": ungraded("design; accounts; logistics; research; customer service; legal; quality"),
    "club": ungraded("The Harbour Rovers; The Valley Wanderers; The Northside Eleven; The Lantern Street Team"),
    "cargo": ungraded("coal; grain; timber; salt; slate; wool; limestone"),
    "canal": ungraded("western canal; Merrow canal; old salt canal; canal of the three locks; Linden canal"),
    "illness": ungraded("migraine; hay fever; chronic back pain; eczema; insomnia; mild asthma; knee arthritis"),
    "heat": ungraded("heat pumps; electric storage heaters; electric boilers; underfloor mats"),
}
