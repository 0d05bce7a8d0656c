"""Sessions and connections that belong together: the sides of a mirror, and the streams of a job."""
