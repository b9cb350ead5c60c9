"""Quotas: a limit for each counter and window of time, never passed by what is admitted.

    acquire            1 write unit     2 or 4 with a key
    reserve            4 write units    for costs that are known afterwards
    commit, release    4 write units    1 for a commit of exactly what was reserved

The counter of a window is an item that is named by the window and made at its first use. So nothing
has to be reset at the end of a window, and no clean-up decides anything.
"""
