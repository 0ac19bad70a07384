"""Several networks of one program, counted while the program runs them."""
