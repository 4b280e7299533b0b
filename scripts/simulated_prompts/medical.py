"""Medical prompts: generic questions on health, mechanisms and case descriptions as found in a textbook."""

import random

from .wording import Graded, Prompt, filled, graded

TEMPLATES = graded("""
    0.0: What are the usual symptoms of {condition}? {tone}
    0.04: What causes {condition}, and who is most at risk? {tone}
    0.18: Describe the pathophysiology of {condition}. {depth}
    0.1: How do {drug} work, and what are their common side effects? {depth}
    0.2: Which interactions should a pharmacist look for when someone takes {drug} together with {drug2}?
        {tone}
    0.08: What is the difference between {pair}? {contrast}
    0.05: Explain to a nervous patient what happens during {procedure}. {tone}
    0.02: What is the recommended first aid for {emergency}? {tone}
    0.16: What does it mean when a blood test shows {lab}? {tone}
    0.25: Case: a/an {20-80}-year-old patient reports {case}. {question}
    0.26: Case: a/an {20-80}-year-old patient who has {condition} reports {case}. A blood test shows {lab}.
        {question}
    0.12: Which {structure}, and what happens if it is damaged? {tone}
    0.06: How can someone lower the risk of {condition} through daily habits? {tone}
    0.38: A test for {condition} has a sensitivity of {70-98}% and a specificity of {80-99}%. With a
        prevalence of {1-9}%, how likely is disease after a positive result? {working}
    0.1: Which vitamins or minerals matter most for {body}, and what are signs of a lack of them? {tone}
    0.08: Write a short information leaflet about {condition} for {audience}. {tone}
    0.4: Design a study to find out whether {drug} help people with {condition}. State the outcome, control
        group and main biases.
""")
SLOTS: dict[str, Graded] = {
    "condition": graded("""
        0.0: the common cold; hay fever; asthma; migraine; high blood pressure; type 2 diabetes; iron
            deficiency; acne
        0.08: gout; shingles; kidney stones; psoriasis; hypothyroidism; osteoporosis; sleep apnoea; coeliac
            disease; gallstones
        0.2: lupus; sarcoidosis; atrial fibrillation; ulcerative colitis; multiple sclerosis; heart failure;
            pancreatitis
        0.34: myasthenia gravis; Wilson disease; acromegaly; haemochromatosis; scleroderma;
            phaeochromocytoma; amyloidosis
        0.42: Fabry disease; stiff-person syndrome; erythromelalgia; acute intermittent porphyria;
            antisynthetase syndrome
    """),
    "drug": graded("""
        0.0: antihistamines; paracetamol tablets; antibiotics; painkillers of the NSAID type; antacids; beta
            blockers
        0.1: statins; ACE inhibitors; proton-pump inhibitors; SSRIs; inhaled corticosteroids; loop diuretics;
            anticoagulants
        0.2: SGLT2 inhibitors; bisphosphonates; monoclonal antibodies; triptans; fluoroquinolones;
            antiepileptic drugs
        0.32: JAK inhibitors; calcineurin inhibitors; MAO inhibitors; antisense oligonucleotides; checkpoint
            inhibitors
    """),
    "pair": graded("""
        0.0: a cold and the flu; a virus and a bacterium; a sprain and a fracture; a vein and an artery; a CT
            and an MRI scan
        0.14: type 1 and type 2 diabetes; a stroke and a transient ischaemic attack; dementia and delirium;
            angina and a heart attack
        0.28: osteoarthritis and rheumatoid arthritis; Crohn's disease and ulcerative colitis; systolic and
            diastolic heart failure
        0.42: nephrotic and nephritic syndrome; central and nephrogenic diabetes insipidus; type I and type
            IV hypersensitivity
    """),
    "procedure": graded("""
        0.0: a blood donation; an X-ray; a vaccination; a dental filling; an ultrasound scan; a hearing test
        0.08: a colonoscopy; an MRI scan; a cataract operation; a stress test of the heart; a skin biopsy;
            general anaesthesia
        0.18: a lumbar puncture; a cardiac catheter examination; dialysis; a bone-marrow biopsy; a liver
            transplant assessment
    """),
    "emergency": graded("""
        0.0: a nosebleed; a minor burn; a bee sting; a twisted ankle; a small cut; a splinter
        0.1: choking; fainting; heat stroke; a suspected broken arm; an asthma attack; frostbite; a dog bite
        0.22: a severe allergic reaction; a seizure; a suspected spinal injury; a snake bite far from any
            hospital; an electric shock
    """),
    "lab": graded("""
        0.0: low iron; high cholesterol; raised blood sugar; a low vitamin D level; a slightly raised white
            cell count
        0.12: a TSH of {6-19} with normal T4; an HbA1c of {6-9}%; raised liver enzymes; a low platelet count;
            high uric acid
        0.25: a sodium of {118-129} mmol/l with low urine osmolality; a raised anion gap; schistocytes;
            positive anti-CCP antibodies
        0.36: a low ceruloplasmin; a mixing study that does not correct; a monoclonal band with low
            complement C4
    """),
    "case": graded("""
        0.0: a runny nose, sneezing and itchy eyes every spring; a sore throat and fever for two days
        0.0: a burning feeling behind the breastbone after large meals; a stiff neck after a long drive
        0.1: pain in the big toe that began overnight, with redness; weight gain, tiredness and feeling cold
            for months
        0.1: pain in one side of the back that comes in waves, and blood in the urine; thirst, weight loss
            and frequent urination
        0.22: drooping eyelids and double vision that get worse towards evening; fever, night sweats and a
            new heart murmur
        0.22: morning stiffness in both hands for an hour, dry eyes and a rash; sudden calf swelling after a
            long flight
        0.34: attacks of headache, sweating and palpitations with very high blood pressure; rising weakness
            in both legs after a stomach bug
        0.34: dark urine, abdominal pain and confusion after a new medicine; numb fingers, a hoarse voice and
            larger shoes every year
    """),
    "question": graded("""
        0.0: What is the most likely cause?; What should be asked next?; Which simple test would help?
        0.08: Name three possible diagnoses and the most likely one.; Which warning signs would need urgent
            care?
        0.16: Give a differential diagnosis in order of likelihood, with the finding that would separate each
            pair.
        0.2: Which investigation comes next, how would each result change the plan, and what must not be
            missed?
    """),
    "structure": graded("""
        0.0: muscle moves the lower jaw; organ makes insulin; bone protects the brain; valve lies between the
            left chambers
        0.12: nerve supplies the diaphragm; artery feeds the inner ear; part of the brain controls balance;
            gland makes cortisol
        0.26: nerve runs through the carpal tunnel; tract carries pain and temperature; cell type makes
            surfactant in the lung
        0.38: branch of the facial nerve carries taste; nucleus sets the daily rhythm; ligament holds the
            head of the talus
    """),
    "body": graded("""
        0.0: healthy bones; the skin; the immune system; growing children; the eyes; the blood; endurance
            athletes
        0.08: people on a vegan diet; pregnancy; the thyroid; wound healing; older adults; nerve function
        0.2: patients after gastric bypass; people with chronic kidney disease; those taking metformin for
            years
    """),
    "audience": graded("""
        0.0: school children; new parents; a waiting room; a sports club
        0.08: people who read little; nursing students; older adults who live alone
        0.18: general practitioners; patients who have read a lot of wrong advice online; health-policy makers
    """),
    "working": graded("""
        0.0: Show the calculation.; Explain it with a group of 10,000 people.; Round to whole percent.
        0.1: Then repeat it for twice the prevalence.; Give the likelihood ratio as well.
        0.2: Then find the result after two independent positive tests, and say why independence is doubtful.
    """),
    "contrast": graded("""
        0.0: Keep it short.; Use everyday words.; A small table would help.
        0.1: Say how one can tell them apart.; Name one thing they have in common.
        0.2: Say when even experts confuse the two, and why that matters.
    """),
    "tone": graded("""
        0.0: Keep it short.; Use everyday words.; Five sentences at most.
        0.08: Say when to see a doctor.; Correct one common myth.; Avoid all technical terms.
        0.18: State how strong the evidence is for each point.; Include rare but serious exceptions and why
            they matter.
    """),
    "depth": graded("""
        0.0: Keep it simple.; Answer in three sentences.; Use everyday language.
        0.06: Mention one important exception.; Explain why, step by step.; Add what a doctor would
            check.
        0.16: Go down to the level of receptors and cells.; Note what
            is still debated.
    """),
}


def medical(rng: random.Random) -> Prompt:
    return filled(rng, TEMPLATES, SLOTS)
