"""What a release is made of: its parts in `make test`, and the files of one in `make release-test`."""
