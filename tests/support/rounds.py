"""Rounds of operations, as the runtime's tests look at them."""


def placed(rounds):
    """(round, operation) of all operations."""
    return [(number, op) for number, ops in enumerate(rounds) for op in ops]
