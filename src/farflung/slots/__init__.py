"""Which work there is and what randomness it is done with; pure and free of torch."""
