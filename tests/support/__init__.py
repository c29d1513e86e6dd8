"""What the tests of several folders use: builders, fakes of programs, processes, recordings.

Nothing here imports the tests of a folder.
"""
