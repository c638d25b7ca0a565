"""The balance of groups: which are judged, when, and with which result."""
