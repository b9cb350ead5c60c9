"""Strict counters: one value, read and changed in the home region, that never passes its bounds.

Every strict counter has a method, chosen when it is made: how a change is written, what it costs,
and what its caller can know when no clear answer came. Each method is one file here, and the file
opens with what it promises and what it cannot know:

    atomic         1 write unit     after a lost answer: nothing is known
    occ            1 read, 1 write  known, unless two others changed the counter meanwhile
    history        1 read, 1 write  known, unless many others did
    request_token  2 write units    a retry of the key within ten minutes is safe
    marker         4 write units    a retry of the key within the counter's window is safe
    set            1 for each KB    a retry of the key is safe for ever; the keys are bounded
"""
