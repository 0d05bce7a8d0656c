"""Sessions and connections that belong together: mirrors, and the streams of one job."""
