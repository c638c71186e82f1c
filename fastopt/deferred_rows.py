"""Rows of tables whose update waits until somebody wants to see them.

A rule such as Adam changes all rows of a table in every step, also those for which a sparse
gradient has nothing. A kernel optimizer may leave that for later: a `Ledger` of the kernels notes
for each row the step at which it was last up to date, and makes up for what it missed, with the
numbers that a step for all rows would have given. Nobody can see the difference:

- A variable knows its ledger, and so do the slots. Reading brings up to date what is read: a
  look-up its rows, everything else all rows. So do assignments, copies and checkpoints, which read.
- One ledger at a time may have rows waiting for a variable. An optimizer that updates a variable
  first takes it over from the ledger of any other (`take_over`).
- A variable in memory that it shares with others (``copy=False``) is brought up to date at the end
  of each step, since nobody has to ask it before looking; so is one with a constraint, which is
  about the numbers after each step.

A rule says what it does to untouched rows as data, in `Untouched` on the kernels' page of rules; a
class that has such a rule sets ``_untouched = "defer"``. That is all. What can be said there:

- slots that shrink by a factor (``shrinking``): the averages of Adam and its relatives;
- a weight that moves by one of them over the root of another slot, which shrinks too (Adam; with
  ``root="identity"`` Adamax) or stays (AMSGrad), or that doesn't move (contrib's Nadam);

The decay of weights before a step of any rule is in it too, without a word on the page: a plan is
given its rate with the step, lets the rows decay that it updates, and the ledger the others. A rule
that does nothing else to untouched rows has a ledger only while its weights decay.

A variable keeps the ledger, and with it the slots, of the optimizer that updated it last, until
another takes it over: rows may be waiting, and what they wait for is in the slots.

Step sizes and rates of decay may change from step to step for free. When a beta or epsilon changes,
all rows are brought up to date in that step.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from fastopt._kernels._deferred import Ledger
from fastopt._kernels.rules import RULES
from fastopt.variable import Variable


class Owners:
    """Whose ledger each variable has: how often that has changed for any of them.

    Attributes
    ----------
    epoch : int
        Who has taken over variables needs to look again only when this has changed.
    """

    __slots__ = ("_lock", "epoch")

    def __init__(self) -> None:
        self.epoch = 0
        self._lock = threading.RLock()

    def take_over(self, variables: Iterable[tuple[Variable | None, Ledger | None]]) -> int:
        """Give variables a ledger, or none, with all rows up to date if that is another one.

        Parameters
        ----------
        variables : iterable of (Variable or None, Ledger or None)
            Nothing happens for a variable that is gone.

        Returns
        -------
        int
            The epoch in which this holds.
        """
        with self._lock:
            changed = False
            for var, ledger in variables:
                if var is None or var._ledger is ledger:
                    continue
                if var._ledger is not None:
                    var._ledger.settle()
                var._ledger = ledger
                changed = True
            self.epoch += changed
            return self.epoch


OWNERS = Owners()


def make_ledger(
    rule: str, var: Variable, slots: Sequence[Variable], master: Variable | None
) -> Ledger | None:
    """Return a ledger for a variable and the slots of a rule, in the rule's order.

    Slots that change in rows without a gradient know it from now on; the variable does when it has
    been taken over.

    Parameters
    ----------
    rule : str
        A name of the page of rules.
    var : Variable
    slots : sequence of Variable
    master : Variable or None
        The float32 weights of which a variable of 16 bits is the rounded form.

    Returns
    -------
    Ledger or None
        None for a scalar, which has no rows.
    """
    if not var.shape:
        return None
    at_once = var._shares_memory or var.constraint is not None or var.shape[0] == 1
    storages = tuple(slot._storage for slot in slots)
    if master is None:
        ledger = Ledger(rule, var._storage, storages, None, at_once)
    else:
        ledger = Ledger(rule, master._storage, storages, var._storage, at_once)
        master._ledger = ledger
    if RULES[rule].untouched is not None:
        for slot in slots:
            slot._ledger = ledger
    return ledger
