"""Planning and generating load on servers, and measuring the results."""
