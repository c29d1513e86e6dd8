"""A release as a platform team gets it: only its files, on the whole node."""
