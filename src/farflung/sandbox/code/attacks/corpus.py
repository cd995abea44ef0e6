"""All attacks, in the order in which a report lists them."""

from farflung.sandbox.code.attacks.attack import Attack
from farflung.sandbox.code.attacks.files import FILES
from farflung.sandbox.code.attacks.network import NETWORK
from farflung.sandbox.code.attacks.processes import PROCESSES
from farflung.sandbox.code.attacks.resources import RESOURCES
from farflung.sandbox.code.attacks.substitutes import SUBSTITUTES
from farflung.sandbox.code.attacks.verdicts import VERDICTS

CORPUS: tuple[Attack, ...] = (*FILES, *PROCESSES, *NETWORK, *RESOURCES, *VERDICTS, *SUBSTITUTES)
