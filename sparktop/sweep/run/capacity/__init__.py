"""The search for the largest load under which conditions hold: judgement of a level, next level, answer."""
