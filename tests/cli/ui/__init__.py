"""What the pages of `vrampack ui` say, and who may read them, in front of an embedded API server."""
