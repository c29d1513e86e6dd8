"""What the tests of several rooms use: builders, fakes of programs, processes, recordings.

Nothing here imports the tests of a room.
"""
