"""Draws a sweep: its panel on the overview, its full screen, and the pages of this screen.

A sweep puts load on servers level by level; a *level* is a target with a concurrency and perhaps a prompt
length. Each level is repeated in several *load runs*. A *track* is a graph over the time of the sweep.
"""
