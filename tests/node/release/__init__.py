"""A release as a platform team gets it: its files alone, on the whole node."""
