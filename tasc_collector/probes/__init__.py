"""One observation of one server at a time, and the signed receipt of it.

::

    reading       one GET over the strict transport
    judgement     what an answer shows: pure
    observations  the observation routes of a profile, with their effects
    canaries      one bounded inference call per capability
    residency     refuses a server that would load, switch or forward the model
    receipts      finding -> signed receipt, and which receipt admits a route
    metrics       an exposition -> canonical metrics: pure; counters: two of them -> what happened in between
    sampler       scrapes around and inside a window
    discovery     what an unknown server says it is

A passive read only reads. Whatever makes a server work, or takes something away from it, needs its effect named.
"""
