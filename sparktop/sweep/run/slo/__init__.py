"""Judge whether levels meet SLO conditions, and search for the range of concurrencies in which they hold."""
