"""Every exercise run tiny before a course (`rehearse`), and what such runs show (`demo`)."""
