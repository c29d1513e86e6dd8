"""The recipes of docs/recipes on the control plane of the end-to-end tests: what they name, from its pinned version, run really."""
