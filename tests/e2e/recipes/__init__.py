"""The recipes of docs/recipes on the control plane of the end-to-end tests: what they name is really run, in its pinned version."""
