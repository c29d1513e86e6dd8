"""JupyterHub with KubeSpawner, its idle culler and its proxy, in an environment of their own: nothing of the product is in it."""
