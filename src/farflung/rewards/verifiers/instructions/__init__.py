"""Instruction following: constraints on form and words that a program can check, the kinds of IFEval.

    units.py      words, sentences, paragraphs: the rules by which this package counts them
    keywords.py   which words occur, and how often
    length.py     how many words, sentences, paragraphs
    content.py    placeholders, a postscript
    form.py       bullets, highlights, sections, JSON, a title, a fixed answer
    whole.py      beginning and end, case, commas, two responses, the prompt repeated
    language.py   in which language
    kinds.py      all of them by name
    grade.py      the verdict on a reply, strict and loose

The kinds follow the public description of IFEval (Zhou et al. 2023, arXiv 2311.07911, table 2); the rules are our own,
stated where they stand, and use no language library. A constraint is a frozen record with `holds(text) -> bool`, linear
in the text and total on all texts.
"""
