"""Execute a sweep: prepare its targets, measure its levels, judge the results and save them."""
