"""What more devices than were measured would bring, with an interval, or why that would be a guess."""
