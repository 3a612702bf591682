"""Decisions of our own analysis (``tasc-analysis-plan-v1``): honest about gaps. Pure.

Reading order: ``units`` (a window as arrays), ``routing`` (what a policy would have given), ``means`` and ``tails`` (the
two kinds of interval), ``costs`` and ``capacity`` (modeled and measured beside the calls), ``sequential`` (looks at
every window), ``figures`` and ``gates`` (what is asked), ``deciding`` (the decision), ``reporting`` (the report), ``words`` (the sentence).
"""
