"""Tells the owners of refused pods why: a condition and an event on the pod, which rights in one namespace are enough to read.

Start with `answer_writer.py`.
"""
