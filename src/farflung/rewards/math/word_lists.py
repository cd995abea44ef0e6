"""The words that the tokenizer and the unit rules know, as data."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NUMBER_SETS = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}
"""By the letter of `mathbb`; the sign after it, of `R^+` or `N^*`, is appended."""
NUMBER_SET_NAMES = frozenset(name + part for name in NUMBER_SETS.values() for part in ("", "+", "-", "*"))
FUNCTIONS = _words(
    "sqrt cbrt ln log lg exp sin cos tan cot sec csc arcsin arccos arctan asin acos atan sinh cosh tanh abs floor ceil "
    "gcd lcm max min det binom arg Re Im"
)
GREEK = _words(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar"
)
TEXT_COMMANDS = _words(
    "text textbf textit textrm textsf texttt mathrm mathbf mathsf mathit mathtt mbox hbox operatorname textnormal"
)
SHORT_WORDS = _words(
    "yes no not the a an is it if of on at to by we you all any one two six ten red new old day has are was dne nan "
    "for but his her odd east per"
)
NO_UNITS = _words(
    "is are was be not no the to of times plus minus over factorial squared cubed more less than at least most about "
    "half halves third thirds quarter quarters fourth fourths fifth fifths tenth tenths hundredth hundredths "
    "thousandth thousandths sixth sixths seventh sevenths eighth eighths ninth ninths one two three four five six "
    "seven eight nine ten zero if when where with for from by but only mod modulo remainder divided power and or "
    "otherwise because so then equal equals true false yes maybe approximately roughly exactly correct wrong "
    "positive negative solution solutions none point points e pi infinity "
    "lakh crore gross score below above before after past under short off away ago negated inverse inverted "
    "reciprocal choose root squareroot square cube permille percentage double triple multiple divisor factor power "
    "logarithm cosine sine tangent prime minus plus"
)
"""Words after a number that say something about it instead of naming its unit; in the singular."""
MOMENT_MARKS = _words("am pm st nd rd th")
"""After digits: of a time of day, of an ordinal."""
PLURALS = _words("people children men women fish sheep mice geese teeth feet dice cattle")
"""Of nouns whose plural has no s."""
