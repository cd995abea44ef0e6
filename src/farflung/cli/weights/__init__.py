"""`farflung weights`: what a version is and how it travelled, whether it is true, and what a step changed."""
