"""Judgement of SLO conditions on a level's figures, and the search for the range in which they hold."""
