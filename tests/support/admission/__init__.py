"""Pods, attacks and policies for the tests of admission, in both of its forms."""
