"""What more devices than were measured would bring: a law, how far such predictions were off on published curves, and
when nothing can be said.
"""
