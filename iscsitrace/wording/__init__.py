"""One vocabulary for everything that a person reads: amounts, percentages, names of parts."""
