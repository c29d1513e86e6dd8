"""The recipes of docs/recipes on the whole node: what they start has the cards and limits of its records."""
