"""What the rules are sure of, form by form: pairs that are equal, pairs that differ, and pairs left open."""

import pytest

from farflung.rewards.math import grade_math

EQUAL = [
    # numbers
    ("42", "+042"),
    ("1000", "1 000".replace(" ", "\u202f")),
    ("1,234,567", "1234567"),
    ("0.125", r"\frac18"),
    (r"0.1\overline{6}", r"\frac{1}{6}"),
    ("7.", "7"),
    (r"{22 \over 7}", "22/7"),
    (r"1\frac12", "1 1/2"),
    ("-1 1/2", "-1.5"),
    ("2½", "2.5"),
    ("6.02e23", r"6.02\times10^{23}"),
    ("3 x 10^5", "300000"),
    ("5 million", "5000000"),
    ("10^{-3}", "10⁻³"),
    (r"\binom{5}{2}", "10"),
    (r"\lfloor 3.7 \rfloor", "3"),
    # roots, pi, e, i, logarithms, angles
    (r"\sqrt{12}", r"2\sqrt3"),
    (r"\frac{1}{1+\sqrt2}", r"\sqrt2-1"),
    (r"\sqrt[3]{16}", r"2\cdot 2^{1/3}"),
    (r"(-8)^{1/3}", "-2"),
    (r"\sqrt{8+4\sqrt3}", r"2\sqrt{2+\sqrt3}"),
    ("√2/2", r"\frac{1}{\sqrt{2}}"),
    (r"\frac43\pi", "4π/3"),
    (r"1-\frac1e", r"\frac{e-1}{e}"),
    (r"(1+i)^2", "2i"),
    (r"e^{i\pi}", "-1"),
    (r"\sqrt{-4}", "2i"),
    (r"\ln 12", r"2\ln2+\ln3"),
    (r"\log_2 3", r"\frac{\ln 3}{\ln 2}"),
    (r"e^{\ln 5}", "5"),
    (r"\sin 75^\circ", r"\frac{\sqrt6+\sqrt2}{4}"),
    (r"\tan\frac{2\pi}{3}", r"-\sqrt3"),
    (r"\arccos\frac12", r"\frac{\pi}{3}"),
    (r"\sin^2 x", r"(\sin x)^2"),
    (r"\cos^{-1} 0", r"\frac\pi2"),
    # symbols
    ("(x+1)^2", "x^2+2x+1"),
    (r"\frac{x^2-1}{x-1}", "x+1"),
    ("2^{n+1}", r"2\cdot2^n"),
    ("4^n", "(2^n)^2"),
    ("(-1)^{n+1}", "-(-1)^n"),
    (r"\sqrt{4x}", r"2\sqrt{x}"),
    ("x^{-1/2}", r"\frac{1}{\sqrt x}"),
    (r"\frac{1}{\sqrt{1+x}}", r"\frac{\sqrt{1+x}}{1+x}"),
    ("|x-1|", "|1-x|"),
    ("n!", "n!"),
    # lists, sets, tuples, intervals, matrices
    (r"1\pm\sqrt2", r"1-\sqrt2, 1+\sqrt2"),
    (r"x=\pm3", "x=3 or x=-3"),
    ("x = 1, 2", r"\{2, 1\}"),
    ("{1, 2}", r"\left\{2,1\right\}"),
    (r"\emptyset", r"\{\}"),
    ("(x,y)=(1,2)", "(1,2)"),
    ("x=1, y=2", "(1,2)"),
    (r"\langle 1,2\rangle", "(1,2)"),
    (r"(-\infty,-1)\cup(1,\infty)", "|x|>1"),
    (r"\mathbb{R}\setminus\{2\}", r"x\ne2"),
    (r"[0,2]\cup[1,3]", r"0\le x\le3"),
    (r"\{x\mid x>3\}", r"(3,\infty)"),
    ("2x+1>7", "x>3"),
    ("-x>3", "x<-3"),
    (r"0<x<\pi", r"(0,\pi)"),
    ("(-\u221e, 2] \u222a [5, \u221e)", r"x \le 2 \text{ or } x \ge 5"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}"),
    # equations, units, texts
    ("y=2x+3", "2x-y+3=0"),
    (r"x=\frac32=1.5", "1.5"),
    (r"\frac13\approx0.33", r"\frac13"),
    ("60 km/h", r"60\text{ kilometers per hour}"),
    (r"12\text{ cm}^2", "12 square centimeters"),
    (r"(1\text{ m}, 2\text{ m})", "(1,2)"),
    ("$0.50", "50 cents"),
    (r"\text{(C)}", "C"),
    (r"\text{the east}", "East."),
    ("red, blue", "blue and red"),
    ("3:4", "6:8"),
    ("1011_2", "1011_{2}"),
]
DIFFERENT = [
    ("5", "5^2"),
    ("9", r"\sqrt9"),
    ("42", "41 or 42"),
    ("7", r"7\pm1"),
    ("3", "x>3"),
    ("2", "2+x"),
    (r"2\pi", "6.283185307179586"),
    (r"\frac13", "0.3333333333"),
    ("e^{-40}", "0"),
    (r"\sqrt2+\sqrt3", r"\sqrt5"),
    ("2^{2^3}", "64"),
    ("3", r"\frac30"),
    ("3+4i", "4+3i"),
    ("2^n", "2n"),
    ("1,2", "1,2,3"),
    ("1,1,2", "1,2"),
    (r"\{1,234\}", r"\{1234\}"),
    ("(1,2)", "12"),
    ("[0,1]", "0<x<1"),
    (r"[0,1]\cup[2,3]", "[0,3]"),
    (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"1,2,3,\ldots", "1,2,3"),
    ("y=2x+1", "y=2x-1"),
    (r"12\text{ cm}^2", r"12\text{ cm}^3"),
    (r"87\text{ m}", r"87\text{ inches}"),
    ("yes", "no"),
    ("A", "B"),
    (r"\text{Monday}", r"\text{Monday or Tuesday}"),
    ("1011_2", "1011_3"),
    ("5", r"\frac{5}{"),
    ("5", "5-"),
    (r"\{1,2\}", r"\{1,2"),
]
OPEN = [
    (r"\sin(2x)", r"2\sin x\cos x"),  # equal
    (r"\sqrt{3+2\sqrt2}", r"1+\sqrt2"),  # equal
    (r"\sqrt{x^2}", "x"),  # for one sign only
    ("5", "5 is wrong"),
    ("5", "5 5"),
    (r"30^\circ", r"\frac\pi6"),
    (r"\{5\}", "5"),
    ("(1,2)", "1,2"),
    ("10:30", "1:3"),
    (r"\text{Evelyn}", r"\text{Evelyn Smith}"),
    ("5", r"\int_0^1 x dx"),
    ("x>3", "y>3"),
    ("x+y=5", "5"),
    ("A", "a"),
    ("101_2", "101"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal_answers_are_right_in_both_directions(gold: str, answer: str) -> None:
    assert grade_math(gold, answer).verdict == 1.0
    assert grade_math(answer, gold).verdict == 1.0


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different_answers_are_wrong_for_sure(gold: str, answer: str) -> None:
    decision = grade_math(gold, answer)
    assert (decision.verdict, decision.undecided) == (0.0, False)


@pytest.mark.parametrize(("gold", "answer"), OPEN)
def test_what_the_rules_cannot_tell_is_left_open_with_the_safe_verdict(gold: str, answer: str) -> None:
    decision = grade_math(gold, answer)
    assert (decision.verdict, decision.undecided) == (0.0, True)


@pytest.mark.parametrize(
    ("gold", "rule", "undecided"),
    [
        ("", "gold_blank", False),
        (r"\boxed{}", "gold_blank", False),
        (r"\frac{1}{", "gold_broken", False),
        (r"\frac{1}{0}", "gold_undefined", False),
        ("9^{9^{9^9}}", "gold_over_limits", False),
        (r"\int_0^1 x dx", "gold_unparseable", True),
    ],
)
def test_a_reference_without_a_value_cannot_be_graded_against(gold: str, rule: str, undecided: bool) -> None:
    decision = grade_math(gold, "5")
    assert (decision.verdict, decision.rule, decision.undecided) == (None, rule, undecided)


def test_the_same_text_is_right_even_outside_the_grammar() -> None:
    assert grade_math(r"\int_0^1 x\,dx", r"$\int_0^1 x dx$").verdict == 1.0


@pytest.mark.parametrize(
    ("gold", "answer", "rule"),
    [
        ("7", "7", "same_integer"),
        ("7", "8", "different_integer"),
        ("0.5", r"\frac12", "same_number"),
        (r"\pi", "2", "different_expression"),
        ("x=(1,2)", "(1,2)", "same_tuple"),
        (r"\{1\}", r"\{2\}", "different_set"),
        ("1,2", "2,1", "same_list"),
        ("x>1", "x>2", "different_interval"),
        ("5 cm", "5 cm", "same_quantity"),
        ("yes", "no", "different_text"),
        ("5", "", "no_answer"),
    ],
)
def test_a_decision_names_its_rule(gold: str, answer: str, rule: str) -> None:
    assert grade_math(gold, answer).rule == rule


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("P(A)=0.3", "P(B)=0.3"),
        ("f(0)=1", "f(1)=1"),
        ("f(x)=x^2", "f(2)=x^2"),
        ("2k", "2ᵏ"),
        ("x_a", "xᵃ"),
    ],
)
def test_what_only_looks_alike_is_not_the_same(gold: str, answer: str) -> None:
    assert grade_math(gold, answer).verdict == 0.0
    assert grade_math(answer, gold).verdict == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [(r"e^{\ln x}", "x"), (r"2^{\sin^2 x + \cos^2 x}", "2"), ("5!!", "15"), ("f(x)=x^2", "f(t)=t^2")],
)
def test_what_these_rules_cannot_know_is_no_sure_no(gold: str, answer: str) -> None:
    assert grade_math(gold, answer).verdict != 1.0
    assert grade_math(gold, answer).undecided


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"5 \text{ m/s}", "5 m/s"),
        ("18 km/h", r"5 \text{ m/s}"),
        ("5 m^2", "5 square meters"),
        ("5 m^2", r"5 \text{ m}^2"),
        (r"12\frac12\%", "0.125"),
        (r"12\frac{1}{2}\%", r"12.5\%"),
        ("2^k", "2ᵏ"),
        ("x_a", "xₐ"),
        ("x^{-n}", "x⁻ⁿ"),
    ],
)
def test_one_thing_written_in_two_ways_is_the_same(gold: str, answer: str) -> None:
    assert grade_math(gold, answer).verdict == 1.0
    assert grade_math(answer, gold).verdict == 1.0


def test_a_list_too_long_to_compare_is_itself() -> None:
    roots = ", ".join(rf"\sqrt{{{number}}}" for number in range(2, 192))
    assert grade_math(roots, roots).rule == "same_text"
    assert grade_math(roots, roots.replace("191", "193")).undecided


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("2024-01-02", "2024-02-01"),
        ("2024-01-02", "2021"),
        ("01/02/2024", r"\frac{1}{4048}"),
        ("0x10", "0"),
        ("0b11", "0"),
        ("5\u20137", "-2"),
        (r"\pm1\pm2", r"\pm3"),
        ("y(1)=2", "y=2"),
        ("y(0)=1", "y(1)=1"),
        ("u(2)=3", "2u=3"),
        (r"\frac{dy}{dx}", r"\frac{y}{x}"),
        (r"\frac{d^2y}{dx^2}", r"\frac{dy}{x^2}"),
        (r"A\times B", r"B\times A"),
        (r"\vec a\times\vec b", r"\vec b\times\vec a"),
        (r"1^{st}", "1"),
        (r"\text{Alice or Bob}", r"\text{Alice and Bob}"),
        ("3:30 pm", "3:30 am"),
        ("3:30 pm", "3:30"),
        ("x", "x=x"),
        ("f^{-1}(x)", r"\frac{x}{f}"),
        ("f^{-1}(x)=2x", "f(x)=2x"),
        ("f'(2)=1", "f'(3)=1"),
        ("y'(0)=1", "y'(1)=1"),
        ("y'(0)=1", "y(0)=1"),
        (r"-30^\circ", r"30^\circ"),
        (r"-\$5", r"\$5"),
        ("1", "1=1"),
        ("2(1/3)", r"2\frac13"),
        (r"2\cdot1/4", r"2\frac14"),
        ("2*1/4", "9/4"),
        ("2(1)/4", "2 1/4"),
        (r"(2)\frac13", r"2\frac13"),
        (r"3\cdot(2)\frac13", "7"),
        (r"\ln 2/2", r"\ln 1"),
        (r"\sin\pi/2", "0"),
        (r"\sin\pi/2", "1"),
        (r"p\wedge q", r"p\vee q"),
        (r"x\equiv 4\pmod{9}", "4"),
        (r"\begin{cases}x&x>0\\-x&x<0\end{cases}", r"\begin{cases}x&x<0\\-x&x>0\end{cases}"),
    ],
)
def test_notation_that_only_resembles_arithmetic_wins_nothing(gold: str, answer: str) -> None:
    assert grade_math(gold, answer).verdict != 1.0
    assert grade_math(answer, gold).verdict != 1.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\pm1\pm2", "3,-3,1,-1"),
        (r"(\pm1, \pm2)", "(1,2),(-1,2),(1,-2),(-1,-2)"),
        (r"\frac{dy}{dx}=2x", "y'=2x"),
        (r"2x\equiv 4\pmod{9}", r"x\equiv 2\pmod{9}"),
        ("3:30 pm", "15:30"),
        ("63 in", "5 ft 3 in"),
        ("3:4", "3 to 4"),
        ("x^2+C", "x^2+c"),
        ("AB", "BA"),
        (r"\overline{AB}=5", "AB=5"),
        ("B", "[B]"),
        ("2^{\\ln 3}", "3^{\\ln 2}"),
        ("5", r"10^{\lg 5}"),
        ("[[1,2],[3,4]]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\{(1,2)\}", "(1,2)"),
        (r"\mathbb{R}^*", r"x\ne0"),
        (r"A\cdot B", "AB"),
        (r"\mathbf i+2\mathbf j", r"\langle1,2\rangle"),
        (r"\hat i+2\hat j", "(1,2)"),
        (r"\text{True}", "T"),
        (r"180^\circ", r"\pi\text{ radians}"),
        ("1 year", "365 days"),
        (r"k\pi, k\in\mathbb{Z}", r"k\pi"),
        (r"\frac\pi2+k\pi, k\in\mathbb{Z}", r"k\pi-\frac\pi2, k\in\mathbb{Z}"),
        (r"\sin k, k\in\mathbb{Z}", r"\sin n, n\in\mathbb{Z}"),
    ],
)
def test_what_may_be_meant_otherwise_is_no_sure_no(gold: str, answer: str) -> None:
    for one, other in ((gold, answer), (answer, gold)):
        decision = grade_math(one, other)
        assert decision.verdict != 1.0
        assert decision.undecided, decision


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\overline{AB}", r"\overline{BA}"),
        (r"\angle ABC", r"\angle CBA"),
        (r"\triangle ABC", r"\triangle CAB"),
        (r"|3-4i|", "5"),
        (r"|1+\sqrt3 i|", "2"),
        (r"0.\bar3", r"\frac13"),
        (r"0.1\overline6", r"\frac16"),
        (r"0.\dot{3}", r"\frac13"),
        (r"f^\prime(x)", "f'(x)"),
        (r"f^{\prime\prime}", "f″"),
        (r"\max(2,3)", "3"),
        (r"\gcd(12,18)", "6"),
        (r"\operatorname{lcm}(4,6)", "12"),
        (r"5\%", r"5\text{ per cent}"),
        ("1 year", "12 months"),
        ("1 L", r"1000\text{ cm}^3"),
        ("60 mph", "60 miles per hour"),
        (r"x\ne 1,2", r"x\ne1 \text{ and } x\ne2"),
        (r"k\pi, k\in\mathbb{Z}", r"n\pi, n\in\mathbb{Z}"),
        (r"2\vec a", r"\vec a+\vec a"),
        ("3:30 pm", r"3:30\text{ P.M.}"),
        (r"10\!:\!30\text{ a.m.}", "10:30 am"),
        ("5th", r"5^{\text{th}}"),
        ("y(1)=2", "2"),
        (r"x=\frac y2", "y/2"),
        (r"\frac x3", r"\frac{1}{3}x"),
        (r"f^{-1}(x)=\frac{x-1}{2}", r"\frac{x-1}{2}"),
        ("f'(x)=2x", "2x"),
        ("p^2(1-p)", "p^2-p^3"),
        (r"-\$5", "-5"),
        (r"\$-5", r"-\$5.00"),
        (r"5\$", r"\$5"),
        ("5 \u20ac", r"5\text{ euros}"),
        (r"-30^\circ", r"-30\text{ degrees}"),
        (r"|\frac{0}{1+x}|", "0"),
        ("**5**", "5"),
        (r"\frac14 \text{ or } 0.25", "25\\%"),
        (r"x=\frac14 \text{ or } x=0.25", "0.25"),
        (r"x \le -1 \lor x\ge2", "x <= -1 or x >= 2"),
        (r"5\text{ in.}", "5 inches"),
        (r"2\cdot1/4", "1/2"),
        ("2(1)/4", "1/2"),
        ("5(0)/5", "0"),
        ("2*9/3", "6"),
        (r"(2)\frac13", r"\frac23"),
        (r"\frac{\ln 2}{2}", r"(\ln 2)/2"),
        (r"2^{\log_2 5}", "5"),
        (r"4^{\log_2 3}", "9"),
        (r"\mathbb{R}^+", r"(0,\infty)"),
        (r"x\in\mathbb{R}_{-}", "x<0"),
        (r"\mathbb{N}^*", r"\mathbb N^{*}"),
        (r"x\equiv 4\pmod{9}", r"x\equiv 13 \pmod 9"),
        (r"x\equiv 4\pmod{9}", "x \u2261 4 (mod 9)"),
        (r"-5^\circ\text{C}", r"-5^\circ C"),
        (r"\hat p(1-\hat p)", r"\hat p-\hat p^2"),
        (r"{8\choose 3}", "56"),
        (r"(\pm3,0)", "(3,0),(-3,0)"),
        (r"\begin{cases}x=2\\y=5\end{cases}", "x=2, y=5"),
        (r"\left\{\begin{array}{l}x=2\\y=5\end{array}\right.", r"\begin{aligned}x&=2\\y&=5\end{aligned}"),
        (r"\frac{dy}{dx}=2x", "2x"),
        (r"\frac{d^2y}{dx^2}=2", r"\frac{d^2 y}{dx^2} = 1+1"),
        (r"5\\", "5"),
    ],
)
def test_what_is_read_alike_is_the_same(gold: str, answer: str) -> None:
    assert grade_math(gold, answer).verdict == 1.0
    assert grade_math(answer, gold).verdict == 1.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\angle ABC", r"\angle ACB"),
        (r"\overline{AB}", r"\overline{AC}"),
        (r"\overrightarrow{AB}", r"\overrightarrow{BA}"),
        (r"\max(2,3)", "2"),
        ("1 L", r"100\text{ cm}^3"),
        ("1 month", "1 year"),
        (r"k\pi, k\in\mathbb{Z}", r"k\pi, k\in\mathbb{Z}, 5"),
        (r"x\ne 1,2", r"x\ne1"),
        ("42", "I think 7, 12 or 42"),
        (r"\gamma", r"\Gamma"),
        (r"\mathbb{Z}^+", r"\mathbb{Z}"),
        (r"2^{\log_2 5}", "6"),
        ("3", "[3]"),
        (r"\frac14", r"\frac14 \text{ or } 0.3"),
        (r"x\equiv 4\pmod{9}", r"x\equiv 4\pmod{6}"),
        (r"x\equiv 4\pmod{9}", r"x\equiv 5\pmod{9}"),
        (r"x\equiv 4\pmod{9}", "x=4"),
        ("2023-11-05", "2023-05-11"),
        ("2023-11-05", "2007"),
        ("7:45 pm", "7:45 am"),
        ("3rd", "4th"),
        (r"-5^\circ\text{C}", r"5^\circ\text{C}"),
        (r"20^\circ\text{C}", r"20^\circ\text{F}"),
        (r"(\pm3,0)", "(3,0)"),
        (r"\begin{cases}x=2\\y=5\end{cases}", r"\begin{cases}x=5\\y=2\end{cases}"),
        (r"\frac{dy}{dt}=3y", r"\frac{dt}{dy}=3y"),
        (r"\frac{dV}{dt}", r"\frac{V}{t}"),
    ],
)
def test_what_is_read_apart_wins_nothing(gold: str, answer: str) -> None:
    assert grade_math(gold, answer).verdict == 0.0
    assert grade_math(answer, gold).verdict != 1.0


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\[4pt] 3 & 4 \end{pmatrix}", 1.0),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\[4pt] 4 & 3 \end{pmatrix}", 0.0),
        (
            r"\begin{bmatrix} 0 & 1 \\ -1 & 0 \end{bmatrix}",
            r"\left[\begin{array}{cc} 0&1 \\ -1&0 \end{array}\right]",
            1.0,
        ),
        (
            r"\begin{bmatrix} 0 & 1 \\ -1 & 0 \end{bmatrix}",
            r"\left(\begin{matrix} 0&1 \\ -1&0 \end{matrix}\right)",
            1.0,
        ),
        (r"\begin{bmatrix} 0 & 1 \\ -1 & 0 \end{bmatrix}", r"\left(\begin{matrix} 0&1 \\ 1&0 \end{matrix}\right)", 0.0),
        ("[1,3)", r"\{x : 1 \le x < 3\}", 1.0),
        ("[1,3)", r"\{x : 1 \le x \le 3\}", 0.0),
        (r"\{1:2\}", r"\{1:3\}", 0.0),
    ],
)
def test_layout_of_matrices_and_sets_does_not_matter(gold: str, answer: str, verdict: float) -> None:
    assert grade_math(gold, answer).verdict == verdict
