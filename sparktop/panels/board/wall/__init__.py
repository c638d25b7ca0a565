"""The wall: hundreds of servers and machines by group, polled directly or scraped by a Prometheus."""
