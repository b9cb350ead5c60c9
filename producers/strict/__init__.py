"""Strict counters: one value, in the home region or over regions, that never passes its bounds.

Every strict counter has a method, chosen when it is made: how a change is written, what it costs,
and what its caller can know when no clear answer came. `applying` calls the class of the method:

    atomic         1 write unit     after a lost answer: nothing is known (`applying`)
    occ            1 read, 1 write  known, unless two others changed the counter (`optimistic`)
    history        1 read, 1 write  known, unless many others did (`optimistic`)
    request_token  2 write units    a retry of the key within ten minutes is safe (`token`)
    marker         4 write units    a retry of the key within its window is safe (`marker`)
    set            1 for each KB    a retry is safe for ever; the keys are bounded (`token`)
"""
