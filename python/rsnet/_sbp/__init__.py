"""How tensors may be distributed: signatures, rules that give them, tables of rules and of costs.

``rsnet.sbp`` and ``rsnet.sbp_rules`` re-export what is here, and apply it to registered operators,
of which nothing here knows.
"""
