"""Judges how evenly a router distributes requests over a group of backends: verdict and evidence."""
