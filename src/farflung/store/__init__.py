"""Objects by key behind one small interface."""
