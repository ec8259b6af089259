"""Search over programs: random, hill climbing with fixed or scheduled neighbourhoods, from random or given starts."""
