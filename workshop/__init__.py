"""What runs inside a job: settings, data, models, measurements, and the launchers' shell library.

Nothing is imported here but the error display, so that `python -m workshop.job.run_record` starts at once.
"""

from workshop import errors as errors
