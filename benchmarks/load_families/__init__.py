"""Load simulations with known truths, for the judge of balance; they share no code with what they test."""
