"""What each operator costs, and what its results are: tables and rules, no state."""
