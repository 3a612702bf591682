"""One inference call: ``prepare`` checks everything and opens nothing, ``dispatch`` spends the handle and says what
happened.
"""
