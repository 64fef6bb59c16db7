"""Every exercise run tiny before a course (`rehearse`)."""
